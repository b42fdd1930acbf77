"""Computes latency, throughput, goodput and errors of a load."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from calotype.bench.serve.load_generator import OK, LoadResult
from calotype.spec.statistics import Summary, summarize


@dataclass(frozen=True)
class LatencyStats:
    """Statistics of the measured interval of a load."""

    seconds: float
    latencies_s: tuple[float, ...]
    """Of the successful requests that were due in the interval, whenever they ended."""
    throughput: float
    """Requests per second that succeeded in the interval."""
    images_per_s: float
    goodput: float | None
    """The part of the throughput within the latency target; None without a target."""
    target_s: float | None
    errors: dict[str, int]
    """Failed requests that were due in the interval, by kind."""

    @property
    def latency(self) -> Summary | None:
        return summarize(self.latencies_s) if self.latencies_s else None


def latency_stats(result: LoadResult, target_s: float | None = None) -> LatencyStats:
    """Compute the statistics of a load."""
    seconds = result.end_s - result.begin_s
    due = [sample for sample in result.samples if result.begin_s <= sample.due_s <= result.end_s]
    successful = [sample for sample in due if sample.reply.kind == OK]
    ended = [
        sample
        for sample in result.samples
        if sample.reply.kind == OK and result.begin_s <= sample.ended_s <= result.end_s
    ]
    in_time = [sample for sample in ended if target_s is not None and sample.latency_s <= target_s]
    return LatencyStats(
        seconds=seconds,
        latencies_s=tuple(sample.latency_s for sample in successful),
        throughput=_per_second(len(ended), seconds),
        images_per_s=_per_second(sum(sample.reply.pictures for sample in ended), seconds),
        goodput=None if target_s is None else _per_second(len(in_time), seconds),
        target_s=target_s,
        errors=dict(Counter(sample.reply.kind for sample in due if sample.reply.kind != OK)),
    )


def _per_second(number: int, seconds: float) -> float:
    return number / seconds if seconds > 0 else 0.0
