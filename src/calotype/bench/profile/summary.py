"""Summarizes a trace: time by group, by kernel and by stage."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter

from calotype.bench.profile.chrome_trace import Event, Trace
from calotype.bench.profile.classify import device_kind, host_kind, short_name
from calotype.bench.profile.intervals import Interval, gaps, shared_out, union
from calotype.spec.records.profile import GROUPS, GroupTime, KernelTime, StageTime

_US = 1e-6


def kernels_of(trace: Trace) -> list[KernelTime]:
    """Return the time of every name, the longest first."""
    kind_of = device_kind if trace.has_device else host_kind
    parts = shared_out(trace.pieces)
    counts = Counter(event.name for event in (trace.device if trace.has_device else trace.operations))
    found = [
        KernelTime(
            name=name,
            short_name=short_name(name),
            group=kind_of(name).group,
            what=kind_of(name).what,
            count=counts[name],
            seconds=time * _US,
            share=time / trace.window.length,
            mean_us=time / counts[name],
        )
        for name, time in parts.items()
    ]
    return sorted(found, key=lambda kernel: (-kernel.seconds, kernel.name))


def groups_of(trace: Trace, kernels: Iterable[KernelTime]) -> list[GroupTime]:
    """Return the time of the whole window by group, including gaps."""
    seconds: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for kernel in kernels:
        seconds[kernel.group] += kernel.seconds
        counts[kernel.group] += kernel.count
    idle = gaps((when for _, when in trace.pieces), trace.window)
    seconds["launch gaps"], counts["launch gaps"] = sum(gap.length for gap in idle) * _US, len(idle)
    window_s = trace.window.length * _US
    return [
        GroupTime(group=group, seconds=seconds[group], share=seconds[group] / window_s, count=counts[group])
        for group in GROUPS
    ]


def stages_of(trace: Trace, names: Iterable[str]) -> list[StageTime]:
    """The stages of those names that the trace has, in the order of their first run.

    A stage's time on the device is that of all it was asked for in the meantime, by whichever thread: torch
    runs the backward pass on one of its own, which no range of ours reaches.
    """
    wanted = set(names)
    started = sorted(
        (call.when.start, event.when)
        for event in trace.device
        if event.correlation is not None and (call := trace.calls.get(event.correlation))
    )
    return [
        StageTime(
            name=name,
            count=len(runs),
            host_s=sum(run.length for run in runs) * _US,
            device_s=_covered(started, runs) * _US if trace.has_device else None,
        )
        for name, runs in _by_name(trace.ranges).items()
        if name in wanted
    ]


def _covered(started: Sequence[tuple[float, Interval]], runs: Iterable[Interval]) -> float:
    """Return the device time of the work launched during the runs."""
    work: list[Interval] = []
    for run in runs:
        first, last = (bisect_left(started, moment, key=itemgetter(0)) for moment in run)
        work += [when for _, when in started[first:last]]
    return sum(one.length for one in union(work))


def _by_name(events: Iterable[Event]) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = defaultdict(list)
    for event in events:
        found[event.name].append(event.when)
    return dict(found)
