"""Who asks when: clients that each wait for their answer, or arrivals that wait for nobody.

Time is the event loop's. Knows nothing of what is asked, nor over what.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True)
class Reply:
    """What came of one request."""

    kind: str = OK
    """`ok`, or in a word what went wrong."""
    job_id: str | None = None
    """What the deployment calls it, where it has said so."""
    pictures: int = 0


@dataclass(frozen=True)
class Sample:
    """One request by the clock."""

    number: int
    due_s: float
    """When it was to be sent: latency counts from here, so that a client that is late hides nothing."""
    ended_s: float
    reply: Reply

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.due_s


@dataclass(frozen=True)
class Load:
    """How much is asked, and for how long."""

    clients: int | None = None
    """So many, each of which asks again when it has its answer."""
    rate: float | None = None
    """Requests a second on average, at random moments (a Poisson process), whoever else is waiting."""
    duration_s: float | None = None
    requests: int | None = None
    """Instead of a duration: so many after the warm-up."""
    warmup_s: float = 0.0
    """The same load before the clock starts; nothing of it counts, and nothing stops in between."""
    seed: int = 0

    def __post_init__(self) -> None:
        assert (self.clients is None) != (self.rate is None), "either clients or a rate"
        assert (self.duration_s is None) != (self.requests is None), "either a duration or a number"


@dataclass(frozen=True)
class LoadResult:
    """All that was asked, and between which moments it counts."""

    samples: tuple[Sample, ...]
    begin_s: float
    end_s: float


Ask = Callable[[int], Awaitable[Reply]]
OnSample = Callable[[Sample], None]


async def generate_load(load: Load, ask: Ask, on_sample: OnSample = lambda _: None) -> LoadResult:
    """Put the load on, and wait until every request has ended."""
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
    """Seconds between arrivals that come at random, `rate` a second; the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    while True:
        yield chance.expovariate(rate)


class _LoadGenerator:
    """One load that is being put on."""

    def __init__(self, load: Load, ask: Ask, on_sample: OnSample) -> None:
        self._load, self._ask, self._on_sample = load, ask, on_sample
        self._now = asyncio.get_running_loop().time
        self.begin_s = self._now() + load.warmup_s
        self.end_s = self.begin_s + (load.duration_s or 0.0)
        self._sent, self._counted = 0, 0
        self.samples: list[Sample] = []

    def _next(self, due_s: float) -> int | None:
        """The number of the next request, if there is to be one."""
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
            await self._one(number, due)

    async def arrivals(self, group: asyncio.TaskGroup) -> None:
        assert self._load.rate is not None
        due = self._now()
        for gap in gaps(self._load.rate, self._load.seed):
            due += gap
            number = self._next(due)
            if number is None:
                return
            # Also when it is late already, so that those before it can be sent.
            await asyncio.sleep(max(0.0, due - self._now()))
            group.create_task(self._one(number, due))

    async def _one(self, number: int, due_s: float) -> None:
        reply = await self._ask(number)
        sample = Sample(number, due_s, self._now(), reply)
        self.samples.append(sample)
        self._on_sample(sample)
