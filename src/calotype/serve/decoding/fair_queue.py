"""Schedules decoding fairly: which client's image is next, and how many pixels are decoded at a time.

Clients take turns, so that a client with many images delays another by one of them. Large images share a
pixel budget, one at a time per client, and never take all slots: a small image waits only for small ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

SMALL_PIXELS = 2**22
"""2048²: decoded in a fraction of a second."""


class _Queue(NamedTuple):
    """A client's images of one size class: small ones do not wait behind large ones."""

    client: str
    small: bool


@dataclass(eq=False)
class _Request:
    pixels: int
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class FairTurns:
    """Grants turns to decode. For one event loop."""

    def __init__(self, places: int, most_large_pixels: int) -> None:
        """`places`: images at a time; `most_large_pixels`: the budget of all large ones together."""
        self._places, self._most_large_pixels = places, most_large_pixels
        self._waiting: dict[_Queue, deque[_Request]] = {}
        """The first queue is the next one."""
        self._running: Counter[_Queue] = Counter()
        self._large_pixels = 0

    @asynccontextmanager
    async def turn(self, client: str, pixels: int) -> AsyncIterator[None]:
        """Wait for a turn to decode so many pixels, and hold it for the block."""
        queue, request = _Queue(client, pixels <= SMALL_PIXELS), _Request(pixels)
        self._waiting.setdefault(queue, deque()).append(request)
        self._grant()
        try:
            await request.granted
            yield
        finally:
            if request.granted.done() and not request.granted.cancelled():
                self._running[queue] -= 1
                if not self._running[queue]:
                    del self._running[queue]
                self._large_pixels -= 0 if queue.small else pixels
            else:
                self._remove(queue, request)
            self._grant()

    @property
    def large(self) -> int:
        """Number of large images that are being decoded."""
        return sum(number for queue, number in self._running.items() if not queue.small)

    def waiting(self, client: str) -> int:
        """Number of waiting images of a client."""
        return sum(len(requests) for queue, requests in self._waiting.items() if queue.client == client)

    def _grant(self) -> None:
        while (queue := self._next()) is not None:
            requests = self._waiting.pop(queue)
            request = requests.popleft()
            if requests:
                self._waiting[queue] = requests
            if request.granted.cancelled():
                continue
            self._running[queue] += 1
            self._large_pixels += 0 if queue.small else request.pixels
            request.granted.set_result(None)

    def _next(self) -> _Queue | None:
        if self._running.total() >= self._places:
            return None
        large = self.large
        # The last place is for small images.
        large_may_start = large < max(1, self._places - 1)
        for queue, requests in self._waiting.items():
            if queue.small:
                return queue
            if not large_may_start or self._running[queue]:
                continue
            if not large or self._large_pixels + requests[0].pixels <= self._most_large_pixels:
                return queue
            # Smaller ones behind it must not overtake it forever.
            large_may_start = False
        return None

    def _remove(self, queue: _Queue, request: _Request) -> None:
        requests = self._waiting.get(queue, deque())
        if request in requests:
            requests.remove(request)
        if not requests:
            self._waiting.pop(queue, None)
