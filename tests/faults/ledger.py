"""What a client means to ask and what it was promised, on disk before anything depends on it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any


class Ledger:
    """Lines of JSON that only grow; a killed writer leaves at most one torn line."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = Lock()
        # What was torn must not swallow the next line.
        os.write(self._fd, b"\n")

    def note(self, **values: Any) -> None:
        with self._lock:
            os.write(self._fd, json.dumps(values).encode() + b"\n")
            os.fsync(self._fd)


@dataclass
class Promises:
    """What a ledger says."""

    meant: set[str] = field(default_factory=set)
    accepted: dict[str, set[str]] = field(default_factory=dict)
    """Every id that was ever answered, by key."""
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Jobs as they were when a client saw them done, by key."""

    @property
    def open(self) -> set[str]:
        """Keys whose end no client has seen."""
        return self.meant - set(self.done)


def read(path: Path) -> Promises:
    found = Promises()
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        key = values["key"]
        found.meant.add(key)
        if "id" in values:
            found.accepted.setdefault(key, set()).add(values["id"])
        if "job" in values:
            found.done[key] = values["job"]
    return found
