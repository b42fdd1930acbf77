"""Known work by a clock that is told what to say gives known numbers, on the host and on a device."""

from __future__ import annotations

import pytest

from calotype.bench.sweep.device_clocks import Cpu
from calotype.bench.sweep.timing import overhead_s, time_back_to_back, time_each
from calotype.spec.statistics import summarize


class Machine:
    """A host and a device with clocks that only go on when something is done.

    Starting work takes the host a moment; the device does it meanwhile, and draws 100 W while it works.
    """

    has_clock = True

    def __init__(self, *, counts_energy: bool = True) -> None:
        self.host_s = 0.0
        self.device_s = 0.0
        self.joules = 1000.0
        self._counts_energy = counts_energy

    def clock(self) -> float:
        return self.host_s

    def work(self, host_s: float, device_s: float) -> None:
        self.host_s += host_s
        self.device_s = max(self.device_s, self.host_s) + device_s
        self.joules += 100 * device_s

    def finish(self) -> None:
        self.host_s = max(self.host_s, self.device_s)

    def mark(self) -> float:
        return max(self.device_s, self.host_s)

    def seconds_between(self, one: float, other: float) -> float:
        return other - one

    def energy_j(self) -> float | None:
        return self.joules if self._counts_energy else None


def test_each_unit_ends_when_the_device_is_done() -> None:
    machine, lengths = Machine(), iter([5.0, 1.0, 2.0, 4.0, 3.0])
    timings = time_each(
        lambda: machine.work(0.5, next(lengths)), machine, units=3, warmup=2, clock=machine.clock
    )
    assert timings.warmup_s == [5.5, 1.5]
    assert timings.wall_s == [2.5, 4.5, 3.5]
    assert timings.device_s == [2.5, 4.5, 3.5]
    assert summarize(timings.wall_s).median == 3.5
    # The first took two seconds longer than one usually does: that is what compiling costs.
    assert timings.compile_s == pytest.approx(2.0)
    assert timings.energy_j == pytest.approx(900.0)
    assert timings.total_s == pytest.approx(10.5)


def test_units_in_a_row_are_not_waited_for() -> None:
    machine = Machine()
    timings = time_back_to_back(
        lambda: machine.work(0.5, 2.0), machine, units=4, warmup=1, clock=machine.clock
    )
    # The host is ready with the next unit before the device is: only the first moment is lost.
    assert timings.total_s == pytest.approx(8.5)
    assert sum(timings.wall_s) == pytest.approx(timings.total_s)
    apart = time_each(lambda: machine.work(0.5, 2.0), machine, units=4, clock=machine.clock)
    assert apart.total_s == pytest.approx(10.0)


def test_what_nobody_counts_is_not_told() -> None:
    machine = Machine(counts_energy=False)
    timings = time_each(lambda: machine.work(0.0, 1.0), machine, units=2, clock=machine.clock)
    assert timings.energy_j is None
    assert timings.compile_s is None
    assert time_each(lambda: None, Cpu(), units=2).device_s is None


def test_the_clock_itself_is_measured_by_doing_nothing() -> None:
    class Slow(Machine):
        def mark(self) -> float:
            self.host_s += 0.25
            return super().mark()

    machine = Slow()
    assert overhead_s(machine, machine.clock) == pytest.approx(0.5)
    assert 0 <= overhead_s(Cpu()) < 0.01
