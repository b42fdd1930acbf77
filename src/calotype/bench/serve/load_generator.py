"""Generates load: clients that each wait for their response (closed loop), or random arrivals (open loop).

The event loop's clock gives the time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True)
class Reply:
    """The result of one request."""

    kind: str = OK
    """`ok`, or the kind of error."""
    job_id: str | None = None
    """The deployment's id of the job, if known."""
    pictures: int = 0


@dataclass(frozen=True)
class Sample:
    """The times of one request."""

    number: int
    due_s: float
    """When it was scheduled: latency counts from here, so that a late client does not hide delays."""
    ended_s: float
    reply: Reply

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.due_s


@dataclass(frozen=True)
class Load:
    """The rate or concurrency of requests, and the duration."""

    clients: int | None = None
    """Number of clients, each of which sends its next request after the response."""
    rate: float | None = None
    """Mean requests per second of a Poisson process, independent of responses."""
    duration_s: float | None = None
    requests: int | None = None
    """Number of requests after the warm-up, instead of a duration."""
    warmup_s: float = 0.0
    """Duration of the same load before the measurement, without a pause in between; it does not count."""
    seed: int = 0

    def __post_init__(self) -> None:
        assert (self.clients is None) != (self.rate is None), "either clients or a rate"
        assert (self.duration_s is None) != (self.requests is None), "either a duration or a number"


@dataclass(frozen=True)
class LoadResult:
    """All samples, and the measured interval."""

    samples: tuple[Sample, ...]
    begin_s: float
    end_s: float


Ask = Callable[[int], Awaitable[Reply]]
OnSample = Callable[[Sample], None]


async def generate_load(load: Load, ask: Ask, on_sample: OnSample = lambda _: None) -> LoadResult:
    """Generate the load and wait until every request has ended."""
    driver = _LoadGenerator(load, ask, on_sample)
    async with asyncio.TaskGroup() as group:
        if load.clients is not None:
            for _ in range(load.clients):
                group.create_task(driver.client())
        else:
            await driver.arrivals(group)
    samples = sorted(driver.samples, key=lambda sample: sample.number)
    end = driver.end_s if load.requests is None else max(sample.ended_s for sample in samples)
    return LoadResult(tuple(samples), driver.begin_s, end)


def gaps(rate: float, seed: int) -> Iterator[float]:
    """Yield seconds between random arrivals at `rate` per second; the seed determines them."""
    generator = random.Random(seed)  # noqa: S311 - not a secret
    while True:
        yield generator.expovariate(rate)


class _LoadGenerator:
    """The state of one load."""

    def __init__(self, load: Load, ask: Ask, on_sample: OnSample) -> None:
        self._load, self._ask, self._on_sample = load, ask, on_sample
        self._now = asyncio.get_running_loop().time
        self.begin_s = self._now() + load.warmup_s
        self.end_s = self.begin_s + (load.duration_s or 0.0)
        self._sent, self._counted = 0, 0
        self.samples: list[Sample] = []

    def _next(self, due_s: float) -> int | None:
        """Return the number of the next request, or None if the load is over."""
        if self._load.requests is None:
            over = due_s >= self.end_s
        else:
            over = self._counted >= self._load.requests
            self._counted += due_s >= self.begin_s
        if over:
            return None
        self._sent += 1
        return self._sent - 1

    async def client(self) -> None:
        while True:
            due = self._now()
            number = self._next(due)
            if number is None:
                return
            await self._send(number, due)

    async def arrivals(self, group: asyncio.TaskGroup) -> None:
        assert self._load.rate is not None
        due = self._now()
        for gap in gaps(self._load.rate, self._load.seed):
            due += gap
            number = self._next(due)
            if number is None:
                return
            # Sleep even if it is late, so that earlier requests are sent.
            await asyncio.sleep(max(0.0, due - self._now()))
            group.create_task(self._send(number, due))

    async def _send(self, number: int, due_s: float) -> None:
        reply = await self._ask(number)
        sample = Sample(number, due_s, self._now(), reply)
        self.samples.append(sample)
        self._on_sample(sample)
