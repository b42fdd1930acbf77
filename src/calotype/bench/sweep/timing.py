"""Work by the clock, again and again. Knows nothing of the work, nor of what the device is.

A unit of work is timed from one moment at which the device has nothing left to do to the next. What the
clock itself costs is measured by timing no work at all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from calotype.spec.statistics import summarize

Clock = Callable[[], float]
_TRIALS, _TRIALS_BEFORE = 200, 20


class MeasuredDevice(Protocol):
    """A device as a clock sees it."""

    def finish(self) -> None:
        """Wait until it has nothing left to do."""
        ...

    @property
    def has_clock(self) -> bool:
        """Whether it has a clock of its own."""
        ...

    def mark(self) -> Any:
        """Put down a mark where its work has got to."""
        ...

    def seconds_between(self, one: Any, other: Any) -> float:
        """From one mark to another, once it has finished."""
        ...

    def energy_j(self) -> float | None:
        """Joules it has drawn since some moment in the past; None if nobody counts them."""
        ...


@dataclass(frozen=True)
class Timings:
    """What the clocks said."""

    warmup_s: list[float]
    wall_s: list[float]
    device_s: list[float] | None
    """The same units on the device's own clock."""
    energy_j: float | None
    """Over all measured units."""
    total_s: float
    """Of all measured units by the host's clock."""

    @property
    def compile_s(self) -> float | None:
        """How much longer the very first unit took than a measured one usually does."""
        if not self.warmup_s:
            return None
        return max(0.0, self.warmup_s[0] - summarize(self.wall_s).median)


def time_each(
    work: Callable[[], object],
    device: MeasuredDevice,
    *,
    units: int,
    warmup: int = 0,
    clock: Clock = time.perf_counter,
) -> Timings:
    """Run units of work one after the other, the first few not counted."""
    before = [_one(work, device, clock)[0] for _ in range(warmup)]
    drawn = device.energy_j()
    measured = [_one(work, device, clock) for _ in range(units)]
    return Timings(
        warmup_s=before,
        wall_s=[seconds for seconds, _ in measured],
        device_s=[seconds for _, seconds in measured] if device.has_clock else None,
        energy_j=_difference(drawn, device.energy_j()),
        total_s=math.fsum(seconds for seconds, _ in measured),
    )


def time_back_to_back(
    work: Callable[[], object],
    device: MeasuredDevice,
    *,
    units: int,
    warmup: int = 0,
    clock: Clock = time.perf_counter,
) -> Timings:
    """As `time_each`, but nobody waits for the device between two units: steps of training.

    A unit's seconds are those between two marks.
    """
    before = [_one(work, device, clock)[0] for _ in range(warmup)]
    device.finish()
    drawn, started = device.energy_j(), clock()
    marks = [device.mark()]
    for _ in range(units):
        work()
        marks.append(device.mark())
    device.finish()
    total = clock() - started
    each = [device.seconds_between(one, other) for one, other in pairwise(marks)]
    return Timings(
        warmup_s=before,
        wall_s=each,
        device_s=each if device.has_clock else None,
        energy_j=_difference(drawn, device.energy_j()),
        total_s=total,
    )


def overhead_s(device: MeasuredDevice, clock: Clock = time.perf_counter) -> float:
    """What measuring adds to a unit: the median of a unit in which nothing is done."""
    return summarize(
        time_each(lambda: None, device, units=_TRIALS, warmup=_TRIALS_BEFORE, clock=clock).wall_s
    ).median


def _one(work: Callable[[], object], device: MeasuredDevice, clock: Clock) -> tuple[float, float]:
    device.finish()
    started = clock()
    begun = device.mark()
    work()
    ended = device.mark()
    device.finish()
    return clock() - started, device.seconds_between(begun, ended)


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
