"""Determines whether the device waits for the host, with numbers and advice.

A gap counts as waiting if the work that ends it was launched after the gap began, so that the device's queue
was empty. Gaps between kernels that were queued in time belong to the device. The caller supplies the advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.bench.profile.chrome_trace import Trace
from calotype.bench.profile.intervals import Interval, common, gaps, union
from calotype.spec.records.profile import Verdict, Waiting

DATA = "data"
"""Name of the stage that fetches the next batch."""
TOO_LONG = 0.15
"""Minimum share of waiting time for a verdict other than device-bound."""
_US = 1e-6


@dataclass(frozen=True)
class Advice:
    """Advice by the cause of waiting."""

    for_host: Sequence[str] = ()
    for_data: Sequence[str] = ()


def launch_bound_time(trace: Trace, advice: Advice, unprofiled_s: float | None = None) -> Waiting:
    """Evaluate a trace; `unprofiled_s` is the time of the same work without the profiler."""
    work = [when for _, when in trace.pieces]
    idle = gaps(work, trace.window)
    busy_s = sum(one.length for one in union(work)) * _US
    idle_s = sum(one.length for one in idle) * _US
    started = {event.correlation for event in trace.device if event.correlation is not None}
    calls = [trace.calls[number] for number in started if number in trace.calls]
    found = Waiting(
        verdict="on the host",
        busy_s=busy_s,
        idle_s=idle_s,
        waiting_s=0,
        waiting_for_data_s=0,
        launches=len(calls),
        launch_s=sum(call.when.length for call in calls) * _US,
        message=f"everything ran on the CPU: operations {busy_s:.3f} s, Python between them {idle_s:.3f} s",
        advice=[],
    )
    if not trace.has_device:
        return found
    waited = _unasked(trace, idle)
    for_data = common(waited, [one.when for one in trace.ranges if one.name == DATA]) * _US
    return _judged(found, sum(one.length for one in waited) * _US, for_data, advice, unprofiled_s)


def _unasked(trace: Trace, idle: Sequence[Interval]) -> list[Interval]:
    """Return the gaps that began before the launch of the work that ends them."""
    first: dict[float, float] = {}
    for event in trace.device:
        call = trace.calls.get(event.correlation) if event.correlation is not None else None
        asked = call.when.start if call else event.when.start
        first[event.when.start] = min(asked, first.get(event.when.start, asked))
    # The last gap ends with the window, when the host no longer launches work.
    return [gap for gap in idle if first.get(gap.end, gap.end) > gap.start]


def _judged(
    found: Waiting, waiting_s: float, for_data_s: float, advice: Advice, unprofiled_s: float | None
) -> Waiting:
    whole_s = found.busy_s + found.idle_s
    lasting_s = waiting_s
    if unprofiled_s is not None:
        # Launches are slower under the profiler, so waiting that it causes does not count.
        whole_s = max(unprofiled_s, found.busy_s)
        lasting_s = min(waiting_s, whole_s - found.busy_s)
    verdict: Verdict = "device-bound"
    if lasting_s >= TOO_LONG * whole_s:
        verdict = "data-bound" if for_data_s > waiting_s / 2 else "host-bound"
    reasons = {"host-bound": advice.for_host, "data-bound": advice.for_data}.get(verdict, ())
    each_us = found.launch_s / found.launches / _US if found.launches else 0.0
    figures = (
        f"the device was busy {found.busy_s * 1e3:.1f} ms of {whole_s * 1e3:.1f} ms and waited for the host "
        f"{lasting_s * 1e3:.1f} ms ({lasting_s / whole_s:.0%}); the host spent {found.launch_s * 1e3:.1f} ms "
        f"in {found.launches} launches of {each_us:.1f} µs"
    )
    return found.model_copy(
        update={
            "verdict": verdict,
            "waiting_s": lasting_s,
            "waiting_for_data_s": min(for_data_s, lasting_s),
            "message": f"{verdict}: {figures}",
            "advice": list(reasons),
        }
    )
