"""Requests and applies rolling updates, which replace a running deployment's workers one by one.

The client writes `update.json` in the deployment's folder and sends SIGUSR1; the server answers in
`updated.json`. The stored plan, which the next start uses, changes only when the update has succeeded.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint

_log = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.1
CHANGEABLE = (
    "models",
    "preset",
    "precision",
    "memory_bytes",
    "max_rows",
    "models_folder",
    "engine",
    "cluster",
)
"""Fields of a plan that concern workers only."""


class NotUpdatedError(CalotypeError):
    """The update failed; the message gives the reason."""


class UpdateRequest(BaseModel):
    """A requested update."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    id: str
    plan: DeploymentConfig


class UpdateResponse(BaseModel):
    """The result of an update."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    id: str
    problem: str | None


def update(directory: DeploymentDir, running: Endpoint, plan: DeploymentConfig) -> None:
    """Replace a running deployment's workers; returns when it is done."""
    check_update(directory.plan(), plan)
    request = UpdateRequest(id=uuid4().hex, plan=plan)
    directory.write("update.json", request)
    os.kill(running.pid, signal.SIGUSR1)
    while (answer := directory.read("updated.json", UpdateResponse)) is None or answer.id != request.id:
        if not running.alive:
            raise NotUpdatedError(f"{directory.name!r} ended before it was updated; {directory.log} says why")
        time.sleep(POLL_INTERVAL_S)
    if answer.problem is not None:
        raise NotUpdatedError(f"{directory.name!r} was not updated: {answer.problem}")


def check_update(old: DeploymentConfig, new: DeploymentConfig) -> None:
    """Raise RequestError for changes that are not possible while it runs."""
    if old.cluster is None or new.cluster is None:
        rule = f"only replicas (--engine ray) are replaced one by one; `calotype undeploy {old.name}` first"
        raise RequestError([Problem("engine", rule, new.engine)])
    if new.cluster.address != old.cluster.address:
        rule = f"it runs in the cluster at {old.cluster.address}; `calotype undeploy {old.name}` first"
        raise RequestError([Problem("cluster.address", rule, new.cluster.address)])
    others = [name for name in DeploymentConfig.model_fields if name not in CHANGEABLE]
    different = [name for name in others if getattr(old, name) != getattr(new, name)]
    if different:
        rule = f"cannot change while {old.name!r} runs; `calotype undeploy {old.name}` first"
        raise RequestError(Problem(name, rule) for name in different)


async def apply_update(
    directory: DeploymentDir, change: Callable[[DeploymentConfig], Awaitable[None]]
) -> None:
    """Apply the requested update and write the result."""
    request = directory.read("update.json", UpdateRequest)
    if request is None:
        _log.error("no update: %s holds no update.json", directory.folder)
        return
    problem: str | None = None
    try:
        check_update(directory.plan(), request.plan)
        await change(request.plan)
        directory.keep_plan(request.plan)
    except CalotypeError as error:
        problem = str(error)
        _log.error("not updated: %s", problem)
    directory.write("updated.json", UpdateResponse(id=request.id, problem=problem))
