"""Save checkpoints in the background: training waits for a copy in host memory, not for the disk.

One save runs at a time, and the next one waits for it: all ranks would have to agree on merging two saves.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from calotype.train.checkpoint.flatten import flatten
from calotype.train.checkpoint.host_copy import HostBuffers, Snapshot
from calotype.train.checkpoint.manager import CheckpointManager
from calotype.train.checkpoint.writer import Barrier, Task, no_barrier

_log = logging.getLogger(__name__)


class BackgroundSaver:
    """Saves into `store` from one background thread. Use it as a context manager, or close it.

    `barrier` is called from that thread: with several ranks it must not share a process group with training
    (see `rank_sync.separate_ranks`).
    """

    def __init__(
        self,
        store: CheckpointManager,
        *,
        rank: int = 0,
        world_size: int = 1,
        barrier: Barrier = no_barrier,
    ) -> None:
        self._store, self._barrier = store, barrier
        self._rank, self._world_size = rank, world_size
        self._shared_buffers, self._own_buffers = HostBuffers(), HostBuffers()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running_save: Future[Path] | None = None
        self._running_step = 0
        self.saved_step: int | None = None
        """The step of the last save that is known to be complete, so that no step is saved twice."""

    def save(
        self,
        step: int,
        shared_state: object,
        own_state: object,
        *,
        metric: float | None = None,
        metric_name: str | None = None,
    ) -> None:
        """Copy the state and write it in the background; later changes of the state do not affect the file.

        Waits for the previous save, and raises its error if it failed.
        """
        self.wait()
        task = self._task(step, metric, metric_name)
        shared = self._shared_buffers.snapshot(flatten(shared_state)) if task.is_first else None
        own = self._own_buffers.snapshot(flatten(own_state))
        self._running_save = self._thread.submit(self._write, task, shared, own)
        self._running_step = step

    def save_now(
        self,
        step: int,
        shared_state: object,
        own_state: object,
        *,
        metric: float | None = None,
        metric_name: str | None = None,
    ) -> Path:
        """Write before returning, and without a copy: for the last save before the process ends.

        An error of the previous save is only logged, because this save replaces it.
        """
        self.settle()
        task = self._task(step, metric, metric_name)
        shared = flatten(shared_state) if task.is_first else None
        path = self._store.write(task, shared, flatten(own_state), self._barrier)
        self.saved_step = step
        return path

    def wait(self) -> None:
        """Wait until no save is running; raises the error of the last one if it failed."""
        running_save, self._running_save = self._running_save, None
        if running_save is not None:
            running_save.result()
            self.saved_step = self._running_step

    def settle(self) -> None:
        """Wait until no save is running; an error is only logged, for callers that save again anyway."""
        try:
            self.wait()
        except Exception:
            _log.warning("the previous checkpoint was not saved; its error is above")

    def close(self) -> None:
        """Wait and end the thread; raises like `wait`."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # The error in flight says more than one of a checkpoint, which is logged.
            self.settle()
        self.close()

    def _task(self, step: int, metric: float | None, metric_name: str | None) -> Task:
        return Task(self._store.folder, step, self._rank, self._world_size, metric, metric_name)

    def _write(self, task: Task, shared: Snapshot | None, own: Snapshot) -> Path:
        try:
            own.finish()
            if shared is not None:
                shared.finish()
            return self._store.write(task, shared.flat if shared else None, own.flat, self._barrier)
        except Exception:
            # Logged at once: the next call, which raises it, may come hours later or never.
            _log.exception("the checkpoint of step %d was not saved", task.step)
            raise
