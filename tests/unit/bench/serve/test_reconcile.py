"""What clients were told beside what a deployment lists, and what its metrics gained."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from calotype.bench.serve.load_generator import Reply, Sample
from calotype.bench.serve.reconcile import reconcile
from calotype.bench.serve.server_metrics import MemoryUse, parse_metrics


def asked(*kinds: str) -> list[Sample]:
    return [
        Sample(number, 0.0, 1.0, Reply(kind, f"id{number}" if kind == "ok" else None))
        for number, kind in enumerate(kinds)
    ]


def job(number: int, state: str = "done", job_id: str | None = None) -> dict[str, Any]:
    return {"id": job_id or f"id{number}", "idempotency_key": f"run-{number}", "state": state}


def key(number: int) -> str:
    return f"run-{number}"


def test_what_adds_up() -> None:
    """A refused request has no job; one that a client gave up has one that ended all the same."""
    told = reconcile(asked("ok", "queue_full", "timeout"), [job(0), job(2, "failed")], key)
    assert told.is_consistent
    assert (told.asked, told.listed) == (3, 2)


@pytest.mark.parametrize(
    ("jobs", "wrong"),
    [
        ([job(0)], {"lost": ("run-1",)}),
        ([job(0), job(1, "failed")], {"lost": ("run-1",)}),
        ([job(0), job(1), job(1)], {"doubled": ("run-1",)}),
        ([job(0), job(1), job(9)], {"unasked": ("run-9",)}),
        ([job(0), job(1, job_id="other")], {"misnamed": ("run-1",)}),
        ([job(0), job(1), job(2, "running")], {"unfinished": ("run-2",)}),
    ],
)
def test_what_does_not(jobs: list[dict[str, Any]], wrong: dict[str, tuple[str, ...]]) -> None:
    told = reconcile(asked("ok", "ok", "timeout"), jobs, key)
    assert not told.is_consistent
    names = ("lost", "unfinished", "doubled", "unasked", "misnamed")
    assert {name: found for name in names if (found := getattr(told, name))} == wrong


def test_metrics_are_read_as_what_was_added() -> None:
    registry = CollectorRegistry()
    rows = Histogram("rows", "of an evaluation", buckets=(1, 2, 4, 8), registry=registry)
    ended = Counter("ended", "jobs", ["state"], registry=registry)
    rows.observe(1)
    ended.labels("done").inc(5)
    before = parse_metrics(generate_latest(registry).decode())
    for value in (2, 3, 4, 4, 100):
        rows.observe(value)
    ended.labels("done").inc(2)
    ended.labels("failed").inc()
    gained = parse_metrics(generate_latest(registry).decode()).since(before)
    assert gained.histogram("rows") == {"2": 1, "4": 3, "+Inf": 1}
    assert gained.mean("rows") == pytest.approx(113 / 5)
    assert gained.total("ended_total") == 3
    assert gained.mean("nothing") is None


def test_memory_that_filled_its_caches_is_not_growing() -> None:
    assert MemoryUse([100, 180, 200, 200, 201]).growth == 1
