"""Runs coroutines as background tasks of one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Short tasks, which end by themselves, and supervised tasks, which run until the deployment ends."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        """`on_end` is called whenever a short task has ended."""
        self._on_end = on_end
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervised: set[asyncio.Task[None]] = set()
        self.failed = False
        """Whether a supervised task failed, so that the deployment cannot continue."""

    def __len__(self) -> int:
        """Number of short tasks that run."""
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def supervise(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until the deployment ends; if it fails, `failed` is set."""
        task = asyncio.create_task(loop)
        self._supervised.add(task)
        task.add_done_callback(self._supervised_done)
        return task

    async def close(self, timeout_s: float) -> None:
        """Cancel all tasks; short tasks get some time to end by themselves."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        tasks = [*self._supervised, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._on_end()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a background task failed", exc_info=task.exception())

    def _supervised_done(self, task: asyncio.Task[None]) -> None:
        self._supervised.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failed = True
            _log.critical("the deployment cannot go on and takes no more jobs", exc_info=task.exception())
