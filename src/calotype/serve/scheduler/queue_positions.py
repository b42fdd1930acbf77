"""Places in the queue, told to whoever looks at a job that waits. Knows nothing of workers.

Every job that is claimed brings all others nearer. So places are looked at once in a while, all of them at
once, and told when they have come a tenth nearer: however long the queue is, one who waits hears little of it
at first and of every place in the end.
"""

from __future__ import annotations

import asyncio
import logging

from calotype.serve.queue.queue import JobQueue
from calotype.serve.scheduler.job_subscriptions import JobSubscriptions
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.service import UnavailableError

_log = logging.getLogger(__name__)

_PARTS = 10


class QueuePositions:
    """Whoever waits in a queue and is looked at."""

    def __init__(self, queue: JobQueue, watchers: JobSubscriptions, settings: DeploymentSettings) -> None:
        self._queue, self._watchers, self._settings = queue, watchers, settings
        self._moved = asyncio.Event()

    def wake(self) -> None:
        """Somebody left the queue, or changed places."""
        self._moved.set()

    async def run(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            try:
                await self._tell()
            except UnavailableError as error:
                _log.error("places in the queue are not told: %s", error)
            await asyncio.sleep(self._settings.places_s)

    async def _tell(self) -> None:
        told = self._watchers.places()
        if not told:
            return
        for job in await self._queue.moved(told, _is_news):
            self._watchers.publish_position(job)


def _is_news(told: int, place: int) -> bool:
    return abs(told - place) * _PARTS >= max(told, 1)
