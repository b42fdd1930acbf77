"""What happens because time passes: deadlines, the history's limits, checks of the queue's disk and database.

Knows nothing of workers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from calotype.serve.queue.queue import JobQueue
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.worker_slot import Sleep
from calotype.serve.service import UnavailableError
from calotype.spec.job import Job

_log = logging.getLogger(__name__)
_CHECK_SHARE = 20
"""A check of the whole database takes at most one part in so many of the time."""


class Maintenance:
    """Looks at a queue's clocks. `on_overdue` hears of each job that has failed for its deadline."""

    def __init__(
        self,
        queue: JobQueue,
        on_overdue: Callable[[Job], Awaitable[None]],
        settings: DeploymentSettings,
        sleep: Sleep,
    ) -> None:
        self._queue, self._on_overdue, self._settings, self._sleep = queue, on_overdue, settings, sleep
        self._look_again = asyncio.Event()

    def wake(self) -> None:
        """There is a new deadline, perhaps sooner than all others."""
        self._look_again.set()

    async def enforce_deadlines(self) -> None:
        while True:
            self._look_again.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._queue.seconds_to_deadline()):
                    await self._look_again.wait()
            try:
                for job in await self._queue.fail_overdue():
                    await self._on_overdue(job)
            except UnavailableError as error:
                _log.error("jobs are past their deadline and cannot be ended: %s", error)
                await self._sleep(self._settings.first_pause_s)

    async def enforce_retention(self) -> None:
        while True:
            try:
                await self._queue.delete_expired()
            except UnavailableError as error:
                _log.error("the history cannot be kept within its limits: %s", error)
            await asyncio.sleep(self._settings.tidy_s)

    async def keep_checking_disk(self) -> None:
        """At short intervals, and at once when the disk has refused something."""
        while True:
            await self._queue.check_disk()
            if self._queue.refusal is not None:
                await asyncio.sleep(self._settings.refused_probe_s)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.probe_s):
                    await self._queue.check_wanted.wait()
            self._queue.check_wanted.clear()

    async def keep_checking_database(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(self._settings.check_s, _CHECK_SHARE * took))
            began = time.monotonic()
            await self._queue.check_database()
            took = time.monotonic() - began
