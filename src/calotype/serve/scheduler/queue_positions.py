"""Publishes queue positions to subscribers of queued jobs.

Every claimed job moves all others forward. So positions are read once per interval, all of them at once, and
published when one has changed by a tenth: a subscriber at the end of a long queue gets few updates at first
and every position in the end.
"""

from __future__ import annotations

import asyncio
import logging

from calotype.serve.queue.queue import JobQueue
from calotype.serve.scheduler.job_subscriptions import JobSubscriptions
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.service import UnavailableError

_log = logging.getLogger(__name__)

_FRACTION = 10


class QueuePositions:
    """Publishes the positions of queued jobs that have subscribers."""

    def __init__(
        self, queue: JobQueue, subscriptions: JobSubscriptions, settings: DeploymentSettings
    ) -> None:
        self._queue, self._subscriptions, self._settings = queue, subscriptions, settings
        self._moved = asyncio.Event()

    def wake(self) -> None:
        """Positions may have changed."""
        self._moved.set()

    async def run(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            try:
                await self._publish()
            except UnavailableError as error:
                _log.error("queue positions cannot be published: %s", error)
            await asyncio.sleep(self._settings.places_s)

    async def _publish(self) -> None:
        last = self._subscriptions.positions()
        if not last:
            return
        for job in await self._queue.moved(last, _is_worth_publishing):
            self._subscriptions.publish_position(job)


def _is_worth_publishing(last: int, position: int) -> bool:
    return abs(last - position) * _FRACTION >= max(last, 1)
