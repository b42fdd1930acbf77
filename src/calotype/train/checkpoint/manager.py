"""The checkpoints of one run in one folder: save, find, load and delete.

Reading needs no lock and works beside a running training. Writing belongs to one run at a time: its first
rank holds the folder's lock.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from calotype.core.errors import Problem, RequestError
from calotype.train.checkpoint.discovery import Checkpoint, leftovers, list_checkpoints, quarantine
from calotype.train.checkpoint.disk_space import explained
from calotype.train.checkpoint.flatten import FlatState, flatten
from calotype.train.checkpoint.folder_lock import FolderLock
from calotype.train.checkpoint.fs import move, remove_folder, remove_or_say, sync_folder
from calotype.train.checkpoint.loader import (
    Loaded,
    Lowest,
    Search,
    load_checkpoint,
    newest_complete,
    only_mine,
)
from calotype.train.checkpoint.retention import best_of, kept
from calotype.train.checkpoint.writer import Barrier, CheckpointWriter, Task, no_barrier

_log = logging.getLogger(__name__)

__all__ = ["CheckpointManager", "Loaded"]


class CheckpointManager:
    """Checkpoints `step-00000100` and so on in `folder`: keeps the last `keep_last` and the `keep_best` best.

    The best are those with the lowest metric. The constructor does not touch the disk.
    """

    def __init__(self, folder: Path, keep_last: int, keep_best: int = 0) -> None:
        if keep_last < 1:
            rule = f"{keep_last} would keep nothing to resume from; use 1 or more"
            raise RequestError([Problem("checkpoint.keep_last", rule, keep_last)])
        self.folder, self.keep_last, self.keep_best = folder, keep_last, keep_best
        self._lock: FolderLock | None = None
        self._damaged: set[Path] = set()

    def claim(self) -> None:
        """Lock the folder for this run and remove leftovers of killed runs; only for the first rank.

        Fails while another process holds the lock. The first save locks it too; an early call fails early.
        """
        if self._lock is not None and self._lock.held:
            return
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
            self._lock = FolderLock(self.folder)
        if self._lock.sure:
            self._remove_leftovers()

    def close(self) -> None:
        """Release the folder's lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def save(
        self,
        step: int,
        shared_state: object,
        own_state: object,
        *,
        rank: int = 0,
        world_size: int = 1,
        metric: float | None = None,
        barrier: Barrier = no_barrier,
    ) -> Path:
        """Write a checkpoint; every rank calls it. The checkpoint is complete and on the disk on return.

        `shared_state` comes from the first rank only, `own_state` from each. An error loses no earlier
        checkpoint.
        """
        task = Task(self.folder, step, rank, world_size, metric)
        shared = flatten(shared_state) if task.is_first else None
        return self.write(task, shared, flatten(own_state), barrier)

    def write(self, task: Task, shared: FlatState | None, own: FlatState, barrier: Barrier) -> Path:
        """`save` for states that are already flattened."""
        if task.world_size > 1 and barrier is no_barrier:
            raise ValueError(f"{task.world_size} ranks need a barrier to write one checkpoint")
        path = CheckpointWriter(task, shared, own, claim=self.claim).write(barrier)
        self._damaged.discard(path)
        if task.is_first:
            self._delete_old(saved=path)
        return path

    def newest(self) -> Path | None:
        """The checkpoint saved last, by its manifest and the sizes of its files."""
        found = newest_complete(self.folder)
        return found.path if found else None

    def best(self) -> Path | None:
        """The complete checkpoint with the lowest metric; None if none has a metric.

        Only checkpoints with the same kind of metric as the newest are compared.
        """
        found = best_of(list_checkpoints(self.folder).complete)
        return found.path if found else None

    def load(self, path: Path, rank: int = 0) -> tuple[Any, Any]:
        """(shared state, own state) of the checkpoint at `path`; raises DamagedCheckpointError if damaged.

        The own state is None, with a warning, for a rank that the saving run did not have.
        """
        loaded = load_checkpoint(path, rank)
        return loaded.shared, loaded.own

    def load_newest(self, rank: int = 0, lowest: Lowest = only_mine) -> Loaded | None:
        """The newest readable checkpoint; damaged ones are skipped with a warning that gives the reason.

        With several ranks all call it, with a `lowest` over all ranks, and all get the same checkpoint. The
        result is None if there is no checkpoint; it is an error if there are some and none is readable.
        """
        search = Search(self.folder, rank)
        loaded = search.newest(lowest)
        self._damaged |= search.damaged.keys()
        return loaded

    def list(self) -> tuple[Checkpoint, ...]:
        """All complete checkpoints in the order they were saved."""
        return list_checkpoints(self.folder).complete

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _delete_old(self, saved: Path) -> None:
        found = list_checkpoints(self.folder)
        intact = [checkpoint for checkpoint in found.complete if checkpoint.path not in self._damaged]
        keep = {saved, *(checkpoint.path for checkpoint in kept(intact, self.keep_last, self.keep_best))}
        delete = [checkpoint.path for checkpoint in intact if checkpoint.path not in keep]
        # Damaged checkpoints may still be of use to somebody until there are enough intact ones.
        if len(intact) >= self.keep_last:
            delete += [checkpoint.path for checkpoint in found.complete if checkpoint.path in self._damaged]
            delete += [broken.path for broken in found.broken if broken.manifest is not None]
        for path in delete:
            remove_or_say(path)

    def _remove_leftovers(self) -> None:
        """Finish or undo what a killed run was doing; needs the lock, as the run could still be alive."""
        try:
            for replaced, place in quarantine(self.folder):
                if place.exists():
                    remove_folder(replaced)
                else:
                    move(replaced, place)
            for path in leftovers(self.folder):
                _log.info("removing %s, a leftover of a stopped run", path)
                shutil.rmtree(path)
        except OSError as error:
            _log.warning("%s: leftovers of an earlier run could not be removed: %s", self.folder, error)
