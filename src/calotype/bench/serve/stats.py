"""What is told of a load: latency, throughput, goodput, what went wrong. Knows nothing of servers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from calotype.bench.serve.load_generator import OK, LoadResult
from calotype.spec.statistics import Summary, summarize


@dataclass(frozen=True)
class LatencyStats:
    """Of the part of a load that counts."""

    seconds: float
    latencies_s: tuple[float, ...]
    """Of the requests that were due in these seconds and got what they asked for, whenever they ended."""
    throughput: float
    """Requests that ended well in these seconds, a second."""
    images_per_s: float
    goodput: float | None
    """Of these, the ones whose latency was within the target; None without a target."""
    target_s: float | None
    errors: dict[str, int]
    """Requests due in these seconds that got something else, by kind."""

    @property
    def latency(self) -> Summary | None:
        return summarize(self.latencies_s) if self.latencies_s else None


def latency_stats(driven: LoadResult, target_s: float | None = None) -> LatencyStats:
    """Work out what a load came to."""
    seconds = driven.end_s - driven.begin_s
    due = [sample for sample in driven.samples if driven.begin_s <= sample.due_s <= driven.end_s]
    well = [sample for sample in due if sample.reply.kind == OK]
    ended = [
        sample
        for sample in driven.samples
        if sample.reply.kind == OK and driven.begin_s <= sample.ended_s <= driven.end_s
    ]
    in_time = [sample for sample in ended if target_s is not None and sample.latency_s <= target_s]
    return LatencyStats(
        seconds=seconds,
        latencies_s=tuple(sample.latency_s for sample in well),
        throughput=_a_second(len(ended), seconds),
        images_per_s=_a_second(sum(sample.reply.pictures for sample in ended), seconds),
        goodput=None if target_s is None else _a_second(len(in_time), seconds),
        target_s=target_s,
        errors=dict(Counter(sample.reply.kind for sample in due if sample.reply.kind != OK)),
    )


def _a_second(number: int, seconds: float) -> float:
    return number / seconds if seconds > 0 else 0.0
