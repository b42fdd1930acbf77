"""Whether the device waits for the host, with the figures that say so and what to do about it.

A gap counts as waiting when the work that ends it had not been asked for when the gap began: the device had
nothing in its queue. Gaps between kernels that were queued in time are the device's own. Knows nothing of
presets and recipes: whoever asks brings the advice along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.bench.profile.chrome_trace import Trace
from calotype.bench.profile.intervals import Interval, common, gaps, union
from calotype.spec.records.profile import Verdict, Waiting

DATA = "data"
"""The stage that fetches the next batch."""
TOO_LONG = 0.15
"""Share of the time from which waiting is worth an answer."""
_US = 1e-6


@dataclass(frozen=True)
class Advice:
    """What to do, by what the device waits for."""

    for_host: Sequence[str] = ()
    for_data: Sequence[str] = ()


def launch_bound_time(trace: Trace, advice: Advice, unprofiled_s: float | None = None) -> Waiting:
    """Look at a trace; `unprofiled_s` is what the same work takes when nobody looks."""
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
        message=f"all ran on the processor: operations {busy_s:.3f} s, Python between them {idle_s:.3f} s",
        advice=[],
    )
    if not trace.has_device:
        return found
    waited = _unasked(trace, idle)
    for_data = common(waited, [one.when for one in trace.ranges if one.name == DATA]) * _US
    return _judged(found, sum(one.length for one in waited) * _US, for_data, advice, unprofiled_s)


def _unasked(trace: Trace, idle: Sequence[Interval]) -> list[Interval]:
    """The gaps that began before the work that ends them had been asked for."""
    first: dict[float, float] = {}
    for event in trace.device:
        call = trace.calls.get(event.correlation) if event.correlation is not None else None
        asked = call.when.start if call else event.when.start
        first[event.when.start] = min(asked, first.get(event.when.start, asked))
    # The last gap ends with the window: by then the host was doing something else.
    return [gap for gap in idle if first.get(gap.end, gap.end) > gap.start]


def _judged(
    found: Waiting, waiting_s: float, for_data_s: float, advice: Advice, unprofiled_s: float | None
) -> Waiting:
    whole_s = found.busy_s + found.idle_s
    lasting_s = waiting_s
    if unprofiled_s is not None:
        # Under the profiler every launch takes longer: what nobody waits for otherwise does not count.
        whole_s = max(unprofiled_s, found.busy_s)
        lasting_s = min(waiting_s, whole_s - found.busy_s)
    verdict: Verdict = "device-bound"
    if lasting_s >= TOO_LONG * whole_s:
        verdict = "data-bound" if for_data_s > waiting_s / 2 else "host-bound"
    reasons = {"host-bound": advice.for_host, "data-bound": advice.for_data}.get(verdict, ())
    each_us = found.launch_s / found.launches / _US if found.launches else 0.0
    figures = (
        f"the device worked {found.busy_s * 1e3:.1f} ms of {whole_s * 1e3:.1f} ms and waited for the host "
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
