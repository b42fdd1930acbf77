"""Reads a Chrome trace of torch's profiler.

The format is open: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are
in microseconds.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from calotype.bench.profile.intervals import Interval, clipped
from calotype.core.errors import NotFoundError, Problem, RequestError

WINDOW = "calotype profile"
"""Name of the range around the profiled work."""
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class Event:
    """An event with a duration."""

    name: str
    when: Interval
    lane: tuple[Any, ...] = ()
    """A device stream or a process thread."""
    correlation: int | None = None
    """Id that links device work to the call that launched it."""


@dataclass(frozen=True)
class Trace:
    """Events inside the window, each kind ordered by start time."""

    window: Interval
    device_name: str | None = None
    device: list[Event] = field(default_factory=list)
    """Kernels and copies."""
    calls: dict[int, Event] = field(default_factory=dict)
    """Launch calls of the host, by correlation id."""
    operations: list[Event] = field(default_factory=list)
    """Nested torch operations on the host."""
    ranges: list[Event] = field(default_factory=list)
    """Marked stages, in host time."""

    @property
    def has_device(self) -> bool:
        return bool(self.device)

    @cached_property
    def pieces(self) -> list[tuple[str, Interval]]:
        """Events that account for the time: device work, or else the innermost host operations."""
        if self.has_device:
            return [(event.name, event.when) for event in self.device]
        return innermost(self.operations)


def read_trace(file: Path) -> Trace:
    """Read a trace file, gzipped or not."""
    if not file.is_file():
        raise NotFoundError(f"no trace file {file}")
    try:
        data = file.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        content = json.loads(text)
        devices = [str(one.get("name")) for one in content.get("deviceProperties", [])]
        return replace(trace_of(content["traceEvents"]), device_name=devices[0] if devices else None)
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError) as error:
        rule = f"{file} is no Chrome trace of torch's profiler ({type(error).__name__}: {error})"
        raise RequestError([Problem("trace", rule)]) from None


def trace_of(events: Iterable[dict[str, Any]]) -> Trace:
    """Build a trace from events; the window is the range of that name, otherwise all events."""
    sorted_out: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat"):
            sorted_out[_kind(event["cat"])].append(_event(event))
    ranges = sorted_out["user_annotation"]
    asked = [one.when for one in ranges if one.name == WINDOW]
    window = _around(asked or [e.when for e in sorted_out["device"] or sorted_out["cpu_op"]])

    def inside(kind: str) -> list[Event]:
        return sorted(_cut(sorted_out[kind], window), key=lambda event: event.when)

    return Trace(
        window=window,
        device=inside("device"),
        calls={e.correlation: e for e in sorted_out["call"] if e.correlation is not None},
        operations=inside("cpu_op"),
        ranges=[one for one in inside("user_annotation") if one.name != WINDOW],
    )


def _kind(category: str) -> str:
    if category in _ON_DEVICE:
        return "device"
    return "call" if category in _CALLS else category


def _event(event: dict[str, Any]) -> Event:
    start = float(event["ts"])
    when = Interval(start, start + float(event.get("dur", 0)))
    return Event(
        name=str(event["name"]),
        when=when,
        lane=(event.get("pid"), event.get("tid")),
        correlation=event.get("args", {}).get("correlation"),
    )


def _around(intervals: list[Interval]) -> Interval:
    if not intervals:
        raise ValueError("the trace contains no event with a duration")
    return Interval(min(one.start for one in intervals), max(one.end for one in intervals))


def _cut(events: Iterable[Event], window: Interval) -> Iterable[Event]:
    for event in events:
        part = clipped(event.when, window)
        if part:
            yield Event(event.name, part, event.lane, event.correlation)


def innermost(operations: Iterable[Event]) -> list[tuple[str, Interval]]:
    """Return each operation's self time, without the operations nested in it on its thread."""
    lanes: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in operations:
        lanes[event.lane].append(event)
    return [piece for lane in lanes.values() for piece in _own_time(lane)]


def _own_time(lane: list[Event]) -> Iterable[tuple[str, Interval]]:
    # Outer operations sort before inner ones with the same start.
    ordered = sorted(lane, key=lambda event: (event.when.start, -event.when.end))
    around: list[Event] = []
    reached = 0.0
    for event in [*ordered, None]:
        until = event.when.start if event else float("inf")
        while around and around[-1].when.end <= until:
            outer = around.pop()
            if reached < outer.when.end:
                yield outer.name, Interval(reached, outer.when.end)
                reached = outer.when.end
        if event is None:
            return
        if around and reached < until:
            yield around[-1].name, Interval(reached, until)
        reached = max(reached, until) if around else until
        around.append(event)
