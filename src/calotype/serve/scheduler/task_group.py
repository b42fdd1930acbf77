"""Work that nobody waits for, in tasks. Knows nothing of what it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Errands, which end by themselves, and keepers, which do not. Belongs to one event loop."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        """`on_end` hears whenever an errand is over."""
        self._on_end = on_end
        self._errands: set[asyncio.Task[None]] = set()
        self._keepers: set[asyncio.Task[None]] = set()
        self.broken = False
        """Whether a keeper failed: then nothing goes on as it should."""

    def __len__(self) -> int:
        """Errands under way."""
        return len(self._errands)

    def spawn(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errand_done)
        return task

    def supervise(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this up to the deployment's end, which its failure would be."""
        keeper = asyncio.create_task(loop)
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keeper_done)
        return keeper

    async def close(self, patience_s: float) -> None:
        """End everything; errands have some time to end by themselves."""
        if self._errands:
            await asyncio.wait(self._errands, timeout=patience_s)
        tasks = [*self._keepers, *self._errands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _errand_done(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        self._on_end()
        if not task.cancelled() and task.exception() is not None:
            _log.error("an errand failed", exc_info=task.exception())

    def _keeper_done(self, task: asyncio.Task[None]) -> None:
        self._keepers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.broken = True
            _log.critical("the deployment cannot go on and takes no more jobs", exc_info=task.exception())
