"""Times reading a recipe's batches as in training, without training."""

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
    """Seconds between consecutive batches."""
    warmup_s: list[float]
    opened_s: float


def check(recipe: Recipe) -> None:
    """Reject synthetic data, which is not read."""
    if recipe.data.kind in SYNTHETIC:
        rule = f"{recipe.data.kind} samples are generated; choose data that is read, as data.kind=shards"
        raise RequestError([Problem("data.kind", rule, recipe.data.kind)])


def read_batches(
    recipe: Recipe, needs: DataRequirements, workers: int, batches: int, warmup: int
) -> Readings:
    """Read micro-batches after a warm-up that does not count."""
    part = recipe.data.model_copy(update={"num_workers": workers})
    started = time.perf_counter()
    with build_dataloader(part, needs, micro_batch_size=recipe.model.micro_batch_size) as feed:
        opened_s = time.perf_counter() - started
        warmup_s = _timed(feed, warmup)
        # Workers prefetch: the prefetched batches are consumed first, so that only reading is timed.
        cpu_s, samples = _cpu_s(), batches * recipe.model.micro_batch_size
        batch_s = _timed(feed, batches)
        cpu_s = _cpu_s() - cpu_s
    rate = Rate(workers, samples / sum(batch_s), max(cpu_s, 1e-9) / samples)
    return Readings(rate, batch_s, warmup_s, opened_s)


def _timed(feed: object, count: int) -> list[float]:
    durations, before = [], time.perf_counter()
    for _ in islice(feed, count):  # type: ignore[call-overload]  # a feed of any kind
        now = time.perf_counter()
        durations.append(now - before)
        before = now
    return durations


def _cpu_s() -> float:
    """Return the CPU time of this process and its running children."""
    ticks = 0
    for worker in multiprocessing.active_children():
        after_name = Path(f"/proc/{worker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
