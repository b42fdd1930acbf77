"""Timed tasks: deadlines, retention, and checks of the queue's disk and database."""

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
"""A check of the whole database takes at most one part in this many of the time."""


class Maintenance:
    """Runs the timed tasks of a queue. `on_overdue` is called for each job that has missed its deadline."""

    def __init__(
        self,
        queue: JobQueue,
        on_overdue: Callable[[Job], Awaitable[None]],
        settings: DeploymentSettings,
        sleep: Sleep,
    ) -> None:
        self._queue, self._on_overdue, self._settings, self._sleep = queue, on_overdue, settings, sleep
        self._deadline_added = asyncio.Event()

    def wake(self) -> None:
        """Read the deadlines again: a new one may be the soonest."""
        self._deadline_added.set()

    async def enforce_deadlines(self) -> None:
        while True:
            self._deadline_added.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._queue.seconds_to_deadline()):
                    await self._deadline_added.wait()
            try:
                for job in await self._queue.fail_overdue():
                    await self._on_overdue(job)
            except UnavailableError as error:
                _log.error("jobs past their deadline cannot be ended: %s", error)
                await self._sleep(self._settings.first_pause_s)

    async def enforce_retention(self) -> None:
        while True:
            try:
                await self._queue.delete_expired()
            except UnavailableError as error:
                _log.error("retention limits cannot be enforced: %s", error)
            await asyncio.sleep(self._settings.tidy_s)

    async def keep_checking_disk(self) -> None:
        """Check at short intervals, and at once after the disk has refused a write."""
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
