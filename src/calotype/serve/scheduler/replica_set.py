"""Scales workers of one kind with the queue and replaces them one by one."""

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
    """Workers of the new kind did not start; those of the old kind stay."""


class ReplicaCount(BaseModel):
    """How many workers there may be, and what decides."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    least: Annotated[int, Field(ge=1, le=1000)] = 1
    most: Annotated[int, Field(ge=1, le=1000)] = 1
    jobs_each: Annotated[int, Field(ge=1)] | None = None
    """Queued and running jobs for each worker; by default as many as one takes at a time."""
    idle_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    """How long fewer workers must have been enough before one is removed."""
    look_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """How often the queue is checked."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"at least {self.least} and at most {self.most} replicas cannot both be")
        return self

    def wanted(self, jobs: int, room: int) -> int:
        """The number of workers for so many jobs, where one takes `room` at a time."""
        return min(self.most, max(self.least, -(-jobs // (self.jobs_each or room))))


class ReplicaSet:
    """Adds and retires a scheduler's workers."""

    def __init__(
        self,
        scheduler: Scheduler,
        start: StartWorker,
        size: ReplicaCount,
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler, self._start, self.size = scheduler, start, size
        self._sleep, self._clock = sleep, clock
        self._enough_since: float | None = None
        """Since when fewer workers have been enough."""
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Scale with the queue until this is cancelled."""
        while True:
            async with self._lock:
                self._scale()
            await self._sleep(self.size.look_s)

    def _scale(self) -> None:
        wanted, present = self._target(), len(self._scheduler.active_slots)
        if wanted >= present:
            self._enough_since = None
            for _ in range(wanted - present):
                self._add()
            return
        now = self._clock()
        self._enough_since = now if self._enough_since is None else self._enough_since
        if present > self.size.most or now - self._enough_since >= self.size.idle_s:
            self._scheduler.retire_in_background(min(self._scheduler.active_slots, key=_retire_order))
            _log.info("removed a worker: %d of %d", present - 1, self.size.most)

    def _target(self) -> int:
        scheduler = self._scheduler
        rooms = [slot.hello.room for slot in scheduler.slots if slot.hello is not None]
        if scheduler.draining or not rooms:
            return min(self.size.most, max(self.size.least, len(scheduler.active_slots)))
        return self.size.wanted(scheduler.unended, max(rooms))

    def _add(self) -> None:
        taken = {slot.name for slot in self._scheduler.slots}
        name = next(name for number in count(1) if (name := replica_name(number)) not in taken)
        self._scheduler.add(name, self._start)
        _log.info("added a worker: %d of %d", len(self._scheduler.active_slots), self.size.most)

    async def roll(self, start: StartWorker, size: ReplicaCount) -> None:
        """Replace workers one at a time: each ends its jobs, and the next follows when the new one is ready.

        Raises UpdateError if the new kind does not start; then all workers are of the old kind again.
        """
        async with self._lock:
            renewed: list[WorkerSlot] = []
            for slot in self._scheduler.active_slots:
                new = await self._replace(slot, start)
                renewed.append(new)
                if new.state == "given up":
                    for replaced in reversed(renewed):
                        await self._replace(replaced, self._start)
                    raise UpdateError(
                        f"{new.name} did not start: {new.problem}; the old workers are restored"
                    )
            self._start, self.size = start, size

    async def _replace(self, slot: WorkerSlot, start: StartWorker) -> WorkerSlot:
        """Its successor, ready or given up; the old worker ends first, as it may hold the only device."""
        await self._scheduler.retire(slot)
        new = self._scheduler.add(slot.name, start)
        await self._scheduler.wait_until(lambda: new.state in ("ready", "given up"))
        return new


def replica_name(number: int) -> str:
    return f"replica-{number}"


def _retire_order(slot: WorkerSlot) -> tuple[bool, int, str]:
    """Sort key for retirement: a worker that is not ready first, then the one with fewest jobs."""
    return slot.state == "ready", len(slot.jobs), slot.name
