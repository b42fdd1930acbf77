"""Load a checkpoint, after all ranks have agreed on which one; changes nothing on the disk.

The sizes of all files are compared before anything is read. Every byte that a rank reads is hashed with
SHA-256 in the same pass (over 1 GB/s on a core, seldom the bottleneck); other ranks verify their own files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.train.checkpoint.discovery import Broken, Checkpoint, check_checkpoint, list_checkpoints
from calotype.train.checkpoint.errors import DamagedCheckpointError
from calotype.train.checkpoint.serialization import read_state
from calotype.train.checkpoint.writer import SHARED_NAME, rank_name

_log = logging.getLogger(__name__)

Lowest = Callable[[int], int]
"""Returns the minimum over the numbers of all ranks; every rank must call it equally often."""


@dataclass(frozen=True)
class Loaded:
    """A checkpoint in memory, on the CPU."""

    path: Path
    step: int
    sequence: int
    world_size: int
    """Of the run that saved it."""
    shared: Any
    own: Any
    """The state of this rank; None if the run that saved it had no such rank."""


def only_mine(number: int) -> int:
    """The `Lowest` of a process without peers."""
    return number


def load_checkpoint(path: Path, rank: int) -> Loaded:
    """Load one checkpoint and verify it while reading."""
    if not path.is_dir():
        raise NotFoundError(f"{path} is not there; a checkpoint is a folder such as step-00001000")
    found = check_checkpoint(path)
    if isinstance(found, Broken):
        raise DamagedCheckpointError(path, found.reason)
    manifest = found.manifest
    marks = dict(manifest.files)
    has_own = rank < manifest.world_size
    try:
        shared = read_state(path, SHARED_NAME, marks)
        own = read_state(path, rank_name(rank), marks) if has_own else None
    except (ModelFileError, OSError, KeyError) as error:
        raise DamagedCheckpointError(path, str(error)) from error
    if not has_own:
        _log.warning(
            "%s was saved by %d ranks and has no state for rank %d, which starts with a new one",
            path,
            manifest.world_size,
            rank,
        )
    return Loaded(path, manifest.step, manifest.sequence, manifest.world_size, shared, own)


class Search:
    """Finds the newest readable checkpoint, and logs why newer ones were skipped."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self.damaged: dict[Path, str] = {}

    def newest(self, lowest: Lowest) -> Loaded | None:
        """The newest checkpoint that every rank can read; None if there are no checkpoints."""
        loaded = self._newest_here(not_after=None)
        while True:
            own_sequence = loaded.sequence if loaded else 0
            lowest_of_all = lowest(own_sequence)
            if lowest(int(own_sequence == lowest_of_all)):
                break
            if lowest_of_all == 0:
                raise NotFoundError(
                    f"some ranks can read checkpoints in {self._folder} and others none: is it on a file "
                    "system that all ranks share?"
                )
            if own_sequence != lowest_of_all:
                loaded = None  # two of them may not fit into memory
                loaded = self._newest_here(not_after=lowest_of_all)
        if loaded is None and self.damaged:
            reasons = "; ".join(f"{path.name}: {reason}" for path, reason in self.damaged.items())
            fix = "remove them, or set checkpoint.resume=false to start anew"
            raise DamagedCheckpointError(
                self._folder, f"holds no checkpoint that can be read ({reasons}); {fix}"
            )
        return loaded

    def _newest_here(self, not_after: int | None) -> Loaded | None:
        found = list_checkpoints(self._folder)
        for broken in found.broken:
            self._skip(broken.path, broken.reason)
        for checkpoint in reversed(found.complete):
            if not_after is not None and checkpoint.manifest.sequence > not_after:
                continue
            try:
                return load_checkpoint(checkpoint.path, self._rank)
            except DamagedCheckpointError as error:
                self._skip(checkpoint.path, error.rule)
        return None

    def _skip(self, path: Path, reason: str) -> None:
        if path not in self.damaged:
            self.damaged[path] = reason
            _log.warning("%s is damaged, so an earlier checkpoint is used: %s", path, reason)


def newest_complete(folder: Path) -> Checkpoint | None:
    """The newest checkpoint by names and sizes; folders that only look like one are logged."""
    found = list_checkpoints(folder)
    newest = found.complete[-1] if found.complete else None
    for broken in found.broken:
        _log.warning("%s does not count: %s", broken.path, broken.reason)
    return newest
