"""Times repeated units of work on a device.

A unit of work is timed from one moment at which the device is idle to the next. Timing an empty unit gives
the overhead of the measurement.
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
    """The clock and the energy meter of a device."""

    def finish(self) -> None:
        """Wait until the device is idle."""
        ...

    @property
    def has_clock(self) -> bool:
        """Whether the device has its own clock."""
        ...

    def mark(self) -> Any:
        """Record a mark in the device's queue."""
        ...

    def seconds_between(self, one: Any, other: Any) -> float:
        """Return the time between two marks, after `finish`."""
        ...

    def energy_j(self) -> float | None:
        """Return the energy in joules since a fixed moment; None without a meter."""
        ...


@dataclass(frozen=True)
class Timings:
    """The measured times."""

    warmup_s: list[float]
    wall_s: list[float]
    device_s: list[float] | None
    """Times of the same units on the device's clock."""
    energy_j: float | None
    """Energy of all measured units."""
    total_s: float
    """Time of all measured units on the host's clock."""

    @property
    def compile_s(self) -> float | None:
        """Extra time of the first unit over the median of the measured ones."""
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
    """Time units of work one after the other, after `warmup` unmeasured ones."""
    before = [_one(work, device, clock)[0] for _ in range(warmup)]
    energy_before = device.energy_j()
    measured = [_one(work, device, clock) for _ in range(units)]
    return Timings(
        warmup_s=before,
        wall_s=[seconds for seconds, _ in measured],
        device_s=[seconds for _, seconds in measured] if device.has_clock else None,
        energy_j=_difference(energy_before, device.energy_j()),
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
    """Time units as `time_each`, but without waiting for the device between them, as in training.

    The time of a unit is the time between two marks.
    """
    before = [_one(work, device, clock)[0] for _ in range(warmup)]
    device.finish()
    energy_before, started = device.energy_j(), clock()
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
        energy_j=_difference(energy_before, device.energy_j()),
        total_s=total,
    )


def overhead_s(device: MeasuredDevice, clock: Clock = time.perf_counter) -> float:
    """Return the overhead of measuring a unit: the median time of an empty unit."""
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
