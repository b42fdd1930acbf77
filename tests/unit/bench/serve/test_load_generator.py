"""Who asks when, and what is told of the answers: known arrivals, known service times, no real clock."""

from __future__ import annotations

import asyncio
import statistics
from itertools import accumulate, islice

import numpy as np
import pytest

from calotype.bench.serve.load_generator import Load, LoadResult, Reply, Sample, gaps, generate_load
from calotype.bench.serve.report import table_of
from calotype.bench.serve.run import Phase
from calotype.bench.serve.stats import latency_stats
from tests.unit.bench.serve.virtual_time import keep_busy, now, run


class Server:
    """Serves one request at a time, each for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock, self.arrived = seconds, asyncio.Lock(), list[float]()

    async def __call__(self, _: int) -> Reply:
        self.arrived.append(now())
        async with self._lock:
            await asyncio.sleep(self._seconds)
        return Reply(pictures=1)


def test_closed_loop_clients_wait_for_their_answers() -> None:
    """Four clients of a server that needs a second each: one a second, and each waits for four."""
    driven = run(generate_load(Load(clients=4, duration_s=20, warmup_s=10), Server(1.0)))
    told = latency_stats(driven, target_s=3.5)
    assert (driven.begin_s, driven.end_s) == (10, 30)
    assert told.throughput == pytest.approx(1.0, abs=0.06)
    assert told.latencies_s == pytest.approx([4.0] * len(told.latencies_s))
    assert told.goodput == 0.0
    assert told.latency is not None
    assert told.latency.p95 == pytest.approx(4.0)
    assert sorted(sample.number for sample in driven.samples) == list(range(len(driven.samples)))


def test_a_number_of_requests_is_asked_exactly() -> None:
    driven = run(generate_load(Load(clients=3, requests=7), Server(2.0)))
    assert len(driven.samples) == 7
    assert driven.end_s == 14.0
    assert latency_stats(driven).throughput == 0.5


def test_what_is_asked_during_the_warm_up_does_not_count() -> None:
    driven = run(generate_load(Load(clients=1, requests=5, warmup_s=3.5), Server(1.0)))
    told = latency_stats(driven)
    assert len(driven.samples) == 4 + 5
    assert len(told.latencies_s) == 5


def test_arrivals_wait_for_nobody() -> None:
    """An overloaded server is asked on and on: latency grows, and counts from when a request was due."""
    server = Server(1.0)
    driven = run(generate_load(Load(rate=2.0, duration_s=100, seed=3), server))
    expected = list(accumulate(islice(gaps(2.0, 3), 1000)))
    due = [sample.due_s for sample in driven.samples]
    assert due == pytest.approx([each for each in expected if each < 100])
    assert server.arrived == pytest.approx(due)
    # The server works through them one after the other.
    ends, free = [], 0.0
    for each in due:
        free = max(free, each) + 1.0
        ends.append(free)
    assert [sample.ended_s for sample in driven.samples] == pytest.approx(ends)
    told = latency_stats(driven, target_s=10.0)
    assert told.throughput == pytest.approx(sum(end <= 100 for end in ends) / 100)
    waits = [end - begun for end, begun in zip(ends, due, strict=True)]
    assert told.latencies_s == pytest.approx(waits)
    assert told.latency is not None
    assert told.latency.p95 == pytest.approx(np.percentile(waits, 95))
    assert told.latency.p99 == pytest.approx(np.percentile(waits, 99))
    in_time = sum(end <= 100 and wait <= 10 for end, wait in zip(ends, waits, strict=True))
    assert told.goodput == pytest.approx(in_time / 100)


def test_a_late_client_hides_nothing() -> None:
    """One that is kept busy sends late; the server's users would have waited from when they came."""

    async def ask(number: int) -> Reply:
        if number == 0:
            keep_busy(50.0)
        return Reply()

    driven = run(generate_load(Load(rate=1.0, requests=20, seed=5), ask))
    first, *others = driven.samples
    for sample in others:
        assert sample.latency_s == pytest.approx(max(0.0, first.ended_s - sample.due_s))
    assert others[0].latency_s > 40


def test_arrivals_are_a_poisson_process() -> None:
    apart = list(islice(gaps(5.0, 0), 20_000))
    assert apart == list(islice(gaps(5.0, 0), 20_000))
    assert apart != list(islice(gaps(5.0, 1), 20_000))
    assert statistics.mean(apart) == pytest.approx(1 / 5, rel=0.03)
    # An exponential law: as much spread as mean, and no memory.
    assert statistics.stdev(apart) == pytest.approx(1 / 5, rel=0.03)
    per_second = np.bincount([int(moment) for moment in accumulate(apart)])[:-1]
    assert per_second.mean() == pytest.approx(5, rel=0.03)
    assert per_second.var() == pytest.approx(5, rel=0.1)


def test_what_went_wrong_is_told_by_kind_and_is_no_throughput() -> None:
    kinds = ["ok", "queue_full", "ok", "timeout", "queue_full"]
    samples = tuple(
        Sample(number, float(number), number + 0.5, Reply(kind, pictures=2 if kind == "ok" else 0))
        for number, kind in enumerate(kinds)
    )
    told = latency_stats(LoadResult(samples, 0.0, 5.0))
    assert told.errors == {"queue_full": 2, "timeout": 1}
    assert told.throughput == 2 / 5
    assert told.images_per_s == 4 / 5
    assert told.goodput is None
    assert told.latencies_s == (0.5, 0.5)
    headings, [row] = table_of([Phase("load", "calotype", Load(clients=1, requests=5), "http", told)])
    shown = dict(zip(headings, row, strict=True))
    assert (shown["requests"], shown["errors"], shown["per s"]) == ("5", "3", "0.4")


def test_a_load_that_only_failed_has_no_latency() -> None:
    told = latency_stats(LoadResult((Sample(0, 0.0, 1.0, Reply("refused")),), 0.0, 1.0))
    assert told.latency is None
    assert told.throughput == 0.0


def test_stopping_leaves_no_request_behind() -> None:
    begun, left = list[int](), list[int]()

    async def ask(number: int) -> Reply:
        begun.append(number)
        try:
            await asyncio.sleep(1000)
        finally:
            left.append(number)
        return Reply()

    async def stopped() -> None:
        task = asyncio.create_task(generate_load(Load(rate=1.0, duration_s=100), ask))
        await asyncio.sleep(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(stopped())
    assert begun
    assert sorted(left) == begun
