"""Saving in the background: training waits for a copy in memory, not for the disk.

One save is under way at a time; a further one waits for it, because merging two would have to be decided by
all ranks alike. Knows nothing of training.
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
    """Saves into `store` from one thread of its own. Use as a context manager, or close it.

    `barrier` is called from that thread: with several ranks it must not share a process group with training
    (see `together.separate_ranks`).
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
        self._under_way: Future[Path] | None = None
        self._step_under_way = 0
        self.saved_step: int | None = None
        """The step of the last save that is known to be complete, so that none is saved twice."""

    def save(
        self,
        step: int,
        shared_state: object,
        own_state: object,
        *,
        metric: float | None = None,
        metric_name: str | None = None,
    ) -> None:
        """Copy the state and write it in the background; changing it afterwards changes nothing in the file.

        Waits for the save before it, and raises what went wrong there.
        """
        self.wait()
        task = self._task(step, metric, metric_name)
        shared = self._shared_buffers.snapshot(flatten(shared_state)) if task.is_first else None
        own = self._own_buffers.snapshot(flatten(own_state))
        self._under_way = self._thread.submit(self._write, task, shared, own)
        self._step_under_way = step

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

        An error of the save before it is only logged, because this one takes its place.
        """
        self.settle()
        task = self._task(step, metric, metric_name)
        shared = flatten(shared_state) if task.is_first else None
        path = self._store.write(task, shared, flatten(own_state), self._barrier)
        self.saved_step = step
        return path

    def wait(self) -> None:
        """Until nothing is under way; raises what went wrong with the save that was."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()
            self.saved_step = self._step_under_way

    def settle(self) -> None:
        """Until nothing is under way; what went wrong is only logged, for those who save again anyway."""
        try:
            self.wait()
        except Exception:
            _log.warning("the checkpoint before this was not saved; its error is above")

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
            # The error that is on its way says more than one in a checkpoint, which is logged.
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
            # Said at once: the next call, which raises it, may be hours away or never come.
            _log.exception("the checkpoint of step %d was not saved", task.step)
            raise
