"""Write one checkpoint by all ranks: begin, write per rank, complete on the first rank, rename.

Ranks communicate through a barrier and the folder alone. A rank that fails still reaches every barrier, so
that the others learn of the failure instead of waiting for it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calotype.core.errors import CalotypeError
from calotype.train.checkpoint.discovery import (
    Checkpoint,
    check_checkpoint,
    checkpoint_path,
    list_checkpoints,
    partial_path,
    replaced_path,
)
from calotype.train.checkpoint.disk_space import check_free_space, explained, free_bytes
from calotype.train.checkpoint.errors import CannotWriteError
from calotype.train.checkpoint.flatten import FlatState
from calotype.train.checkpoint.fs import FileMark, move, remove_folder, remove_or_say, sync_folder
from calotype.train.checkpoint.manifest import Manifest, finite_or_none, write_manifest
from calotype.train.checkpoint.serialization import marks_of, needed_bytes, write_state

SHARED_NAME = "state"

Barrier = Callable[[], object]


def no_barrier() -> None:
    """The barrier of a process without peers."""


def rank_name(rank: int) -> str:
    return f"rank-{rank:05d}"


@dataclass(frozen=True)
class Task:
    """A checkpoint to write, from the view of one rank."""

    folder: Path
    step: int
    rank: int = 0
    world_size: int = 1
    metric: float | None = None
    metric_name: str | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.world_size and self.step >= 0):
            raise ValueError(f"step {self.step} of rank {self.rank} among {self.world_size} is impossible")

    @property
    def is_first(self) -> bool:
        return self.rank == 0


class CheckpointWriter:
    """The work of one rank on one checkpoint."""

    def __init__(
        self, task: Task, shared: FlatState | None, own: FlatState, *, claim: Callable[[], None]
    ) -> None:
        """`shared` is written by the first rank and None elsewhere; `claim` locks the folder."""
        self.task, self._shared, self._own, self._claim = task, shared, own, claim
        self.partial = partial_path(task.folder, task.step)
        self.path = checkpoint_path(task.folder, task.step)
        self._marks: dict[str, FileMark] = {}
        self._has_begun = False
        self._needed_bytes = needed_bytes(own)
        if shared is not None:
            self._needed_bytes = needed_bytes(shared) + needed_bytes(own) * task.world_size

    def write(self, barrier: Barrier) -> Path:
        """Write the checkpoint together with the other ranks; it is complete and on the disk on return."""
        try:
            outcome = _Outcome()
            outcome.attempt(self._begin)
            barrier()
            outcome.attempt(self._write)
            barrier()
            outcome.attempt(self._complete)
            barrier()
            outcome.attempt(self._confirm)
            outcome.raise_failure()
        except BaseException:
            # Delete only what this run began: if the folder was refused, a partial one belongs to another
            # run.
            if self._has_begun:
                shutil.rmtree(self.partial, ignore_errors=True)
            raise
        return self.path

    def _begin(self) -> None:
        check_free_space(self.task.folder, self._needed_bytes)
        if self.task.is_first:
            self._claim()
            with explained(self.task.folder, self._needed_bytes):
                if self.partial.exists():
                    shutil.rmtree(self.partial)
                self.partial.mkdir()
            self._has_begun = True

    def _write(self) -> None:
        if not self.partial.is_dir():
            raise self._error(
                f"rank {self.task.rank} does not see {self.partial.name} of the first rank",
                "see the first rank's message, and let all ranks use one file system",
            )
        with explained(self.task.folder, self._needed_bytes):
            if self._shared is not None:
                self._marks |= write_state(self.partial, SHARED_NAME, self._shared)
            self._marks |= write_state(self.partial, rank_name(self.task.rank), self._own)

    def _complete(self) -> None:
        if not self.task.is_first:
            return
        for rank in range(1, self.task.world_size):
            self._marks |= self._marks_of_other(rank)
        manifest = Manifest(
            step=self.task.step,
            sequence=max(list_checkpoints(self.task.folder).last_sequence + 1, time.time_ns()),
            world_size=self.task.world_size,
            metric=finite_or_none(self.task.metric),
            files=self._marks,
            metric_name=self.task.metric_name,
        )
        with explained(self.task.folder, self._needed_bytes):
            # Names are synced first: a manifest must never be on the disk before the files that it lists.
            sync_folder(self.partial)
            write_manifest(self.partial, manifest)
            sync_folder(self.partial)
            self._rename()

    def _rename(self) -> None:
        """Rename to the final name. A checkpoint of the same step is renamed first and counts until then."""
        replaced = replaced_path(self.task.folder, self.task.step)
        if self.path.exists():
            if replaced.exists():
                remove_folder(replaced)
            move(self.path, replaced)
        move(self.partial, self.path)
        if replaced.exists():
            remove_or_say(replaced)

    def _confirm(self) -> None:
        if self.task.is_first:
            return
        found = check_checkpoint(self.path, self.task.step)
        if not (isinstance(found, Checkpoint) and self._marks.items() <= found.manifest.files.items()):
            raise self._error("another rank could not write its part", "see the message of that rank")

    def _marks_of_other(self, rank: int) -> dict[str, FileMark]:
        try:
            return marks_of(self.partial, rank_name(rank))
        except (CalotypeError, OSError) as error:
            raise self._error(
                f"rank {rank} did not write its part ({error})", "see the message of that rank"
            ) from error

    def _error(self, reason: str, fix: str) -> CannotWriteError:
        folder = self.task.folder
        return CannotWriteError(
            folder, reason, fix, needed_bytes=self._needed_bytes, free_bytes=free_bytes(folder)
        )


class _Outcome:
    """The first failure of several stages; the stages after it are skipped."""

    def __init__(self) -> None:
        self._failure: Exception | None = None

    def attempt(self, stage: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                stage()
            except Exception as error:
                self._failure = error

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
