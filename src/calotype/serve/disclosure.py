"""What a client sees of the machine: admins see paths and process ids, other clients see names only."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from calotype.serve.auth import Client
from calotype.serve.service import Status, WorkerStatus

_ABSOLUTE_PATH = re.compile(r"(?<![\w.~/:<])/(?:[^\s/'\"`,;:()<>|]+/)*([^\s/'\"`,;:()<>|]+)/?")
"""An absolute path inside a text, with the name at its end. URLs do not match."""


def names_only(value: Any) -> Any:
    """Plain values with every absolute path replaced by its last name."""
    if isinstance(value, str):
        return _without_paths(value)
    if isinstance(value, dict):
        return {key: names_only(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [names_only(inner) for inner in value]
    return value


def visible(caller: Client, value: Any) -> Any:
    """Plain values as this client may see them: admins see paths."""
    return value if caller.admin else names_only(value)


def visible_status(caller: Client, status: Status) -> Status:
    """The status of a deployment as this client may see it."""
    if caller.admin:
        return status
    workers = tuple(_visible_worker(worker) for worker in status.workers)
    return dataclasses.replace(status, workers=workers, problem=names_only(status.problem))


def _visible_worker(worker: WorkerStatus) -> WorkerStatus:
    return dataclasses.replace(
        worker, pid=None, loading=names_only(worker.loading), problem=names_only(worker.problem)
    )


def _without_paths(text: str) -> str:
    # A text that is a path may have spaces in it.
    if text.startswith("/") and "\n" not in text:
        return text.rstrip("/").rpartition("/")[2]
    return _ABSOLUTE_PATH.sub(r"\1", text) if "/" in text else text
