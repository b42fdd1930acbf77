"""Reads a recipe's batches by the clock, as training would, and trains nothing. Knows nothing of records."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from calotype.bench.dataloader.gpus_fed import Rate
from calotype.core.errors import Problem, RequestError
from calotype.spec.recipe import Recipe
from calotype.train.data.dataloader import build_dataloader
from calotype.train.data.factory import SYNTHETIC
from calotype.train.data.requirements import DataRequirements


@dataclass(frozen=True)
class Readings:
    rate: Rate
    batch_s: list[float]
    """Between one batch and the next."""
    warmup_s: list[float]
    opened_s: float


def check(recipe: Recipe) -> None:
    """Refuse data that nobody reads."""
    if recipe.data.kind in SYNTHETIC:
        rule = (
            f"{recipe.data.kind} samples are made on the device; name a set that is read, as data.kind=shards"
        )
        raise RequestError([Problem("data.kind", rule, recipe.data.kind)])


def read_batches(
    recipe: Recipe, needs: DataRequirements, workers: int, batches: int, warmup: int
) -> Readings:
    """So many micro-batches after so many that do not count."""
    part = recipe.data.model_copy(update={"num_workers": workers})
    started = time.perf_counter()
    with build_dataloader(part, needs, micro_batch_size=recipe.model.micro_batch_size) as feed:
        opened_s = time.perf_counter() - started
        warmup_s = _timed(feed, warmup)
        # Workers read ahead: what they have ready is used up, so that the clock sees them at work alone.
        cpu_s, samples = _cpu_s(), batches * recipe.model.micro_batch_size
        batch_s = _timed(feed, batches)
        cpu_s = _cpu_s() - cpu_s
    rate = Rate(workers, samples / sum(batch_s), max(cpu_s, 1e-9) / samples)
    return Readings(rate, batch_s, warmup_s, opened_s)


def _timed(feed: object, count: int) -> list[float]:
    found, before = [], time.perf_counter()
    for _ in islice(feed, count):  # type: ignore[call-overload]  # a feed of any kind
        now = time.perf_counter()
        found.append(now - before)
        before = now
    return found


def _cpu_s() -> float:
    """CPU time of this process and of those it has started and that still run."""
    ticks = 0
    for worker in multiprocessing.active_children():
        after_name = Path(f"/proc/{worker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
