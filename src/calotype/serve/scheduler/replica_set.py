"""Workers of one kind, as many as the queue wants, and their replacement one by one.

Knows nothing of where workers run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from calotype.core.errors import CalotypeError
from calotype.serve.scheduler.scheduler import Scheduler
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.serve.scheduler.worker_slot import Sleep, WorkerSlot

_log = logging.getLogger(__name__)


class UpdateError(CalotypeError):
    """Workers of the new kind that would not start; those of the old kind go on."""


class ReplicaCount(BaseModel):
    """How many workers there may be, and what decides."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    least: Annotated[int, Field(ge=1, le=1000)] = 1
    most: Annotated[int, Field(ge=1, le=1000)] = 1
    jobs_each: Annotated[int, Field(ge=1)] | None = None
    """Waiting and running jobs for each worker; as many as one takes at a time if not said."""
    idle_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    """How long fewer must have been enough before one goes."""
    look_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """How often the queue is looked at."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"at least {self.least} and at most {self.most} replicas cannot both be")
        return self

    def wanted(self, jobs: int, room: int) -> int:
        """Workers for so many jobs, where one takes `room` at a time."""
        return min(self.most, max(self.least, -(-jobs // (self.jobs_each or room))))


class ReplicaSet:
    """Adds and retires a dispatcher's workers."""

    def __init__(
        self,
        dispatcher: Scheduler,
        start: StartWorker,
        size: ReplicaCount,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dispatcher, self._start, self.size = dispatcher, start, size
        self._sleep, self._clock = sleep, clock
        self._enough_since: float | None = None
        """Since when fewer workers would do."""
        self._changing = asyncio.Lock()

    async def run(self) -> None:
        """Follow the queue until this is cancelled."""
        while True:
            async with self._changing:
                self._follow()
            await self._sleep(self.size.look_s)

    def _follow(self) -> None:
        wanted, there = self._wanted(), len(self._dispatcher.staying)
        if wanted >= there:
            self._enough_since = None
            for _ in range(wanted - there):
                self._add()
            return
        now = self._clock()
        self._enough_since = now if self._enough_since is None else self._enough_since
        if there > self.size.most or now - self._enough_since >= self.size.idle_s:
            self._dispatcher.retire_in_background(min(self._dispatcher.staying, key=_use))
            _log.info("one worker less: %d of %d", there - 1, self.size.most)

    def _wanted(self) -> int:
        dispatcher = self._dispatcher
        rooms = [seat.hello.room for seat in dispatcher.seats if seat.hello is not None]
        if dispatcher.draining or not rooms:
            return min(self.size.most, max(self.size.least, len(dispatcher.staying)))
        return self.size.wanted(dispatcher.unended, max(rooms))

    def _add(self) -> None:
        taken = {seat.name for seat in self._dispatcher.seats}
        name = next(name for number in count(1) if (name := replica_name(number)) not in taken)
        self._dispatcher.add(name, self._start)
        _log.info("one worker more: %d of %d", len(self._dispatcher.staying), self.size.most)

    async def roll(self, start: StartWorker, size: ReplicaCount) -> None:
        """Replace workers one at a time: each ends its jobs first, and the next when the new one is ready.

        An UpdateError if the new kind will not start: then those of the old kind have all places again.
        """
        async with self._changing:
            renewed: list[WorkerSlot] = []
            for seat in self._dispatcher.staying:
                new = await self._replaced(seat, start)
                renewed.append(new)
                if new.state == "given up":
                    for each in reversed(renewed):
                        await self._replaced(each, self._start)
                    raise UpdateError(f"{new.name} would not start: {new.problem}; all are as they were")
            self._start, self.size = start, size

    async def _replaced(self, seat: WorkerSlot, start: StartWorker) -> WorkerSlot:
        """Its successor, ready or given up; it leaves before that comes, as it may have the only room."""
        await self._dispatcher.retire(seat)
        new = self._dispatcher.add(seat.name, start)
        await self._dispatcher.wait_until(lambda: new.state in ("ready", "given up"))
        return new


def replica_name(number: int) -> str:
    return f"replica-{number}"


def _use(seat: WorkerSlot) -> tuple[bool, int, str]:
    """How much would be lost with it: one that is not ready goes first, then the one with least to do."""
    return seat.state == "ready", len(seat.jobs), seat.name
