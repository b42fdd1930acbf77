"""Compares GPUs within a source: the best of each, and equal batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from calotype.bench.conclusions.group_by import group_across, speed, with_speed
from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.types import Entry

_Runs = list[tuple[Entry, float]]


def gpu_ratios(entries: Sequence[Entry]) -> list[Statement]:
    """Compare every two GPUs of a source that did the same work on the same number of devices."""
    plain = [entry for entry in entries if not entry.settings.switches and entry.settings.gpu]
    statements = []
    for group in group_across(plain, "gpu", "micro_batch", "global_batch", "batch"):
        runs: dict[str, _Runs] = {}
        for entry, value in with_speed(group):
            runs.setdefault(str(entry.settings.gpu), []).append((entry, value))
        statements += [ratio_of(one, other) for one, other in combinations(runs.values(), 2)]
    return statements


def ratio_of(one: _Runs, other: _Runs) -> Statement:
    """Divide the faster GPU's best by the slower's; the notes compare equal batches."""
    low, high = sorted((one, other), key=lambda runs: max(value for _, value in runs))
    slow, fast = best(low), best(high)
    count = fast[0].settings.num_gpus or 1
    names = [str(run[0].settings.gpu) for run in (fast, slow)]
    measure = speed(fast[0])
    ratio = fast[1] / slow[1]
    return Statement(
        topic="GPU against GPU",
        source=fast[0].source,
        says=f"{count} × {names[0]} is {ratio:.2f}× as fast as {count} × {names[1]}"
        f" ({names[1]} reaches {1 / ratio:.1%} of {names[0]}), best of each",
        value=ratio,
        unit="×",
        arithmetic=f"{_shown(fast)} / {_shown(slow)} = {ratio:.4f} ({measure[0] if measure else ''})",
        inputs=(fast[0].id, slow[0].id),
        notes=(*_equal_batches(high, low), *doubts((fast[0], slow[0]))),
    )


def best(runs: _Runs) -> tuple[Entry, float]:
    return max(runs, key=lambda run: run[1])


def batch_of(entry: Entry) -> int | None:
    return entry.settings.micro_batch or entry.settings.batch


def _shown(run: tuple[Entry, float]) -> str:
    return f"{run[1]:.4g} (batch {batch_of(run[0])})"


def _equal_batches(high: _Runs, low: _Runs) -> list[str]:
    """Compare equal batches, with the best run of each."""
    fast, slow = _by_batch(high), _by_batch(low)
    return [
        f"at batch {batch_of(one[0])} on both: {one[1]:.4g} / {slow[batch][1]:.4g} = "
        f"{one[1] / slow[batch][1]:.3f}"
        for batch, one in fast.items()
        if batch in slow
    ]


def _by_batch(runs: _Runs) -> dict[tuple[int | None, ...], tuple[Entry, float]]:
    groups: dict[tuple[int | None, ...], _Runs] = {}
    for run in runs:
        settings = run[0].settings
        groups.setdefault((settings.micro_batch, settings.batch, settings.global_batch), []).append(run)
    return {batch: best(several) for batch, several in groups.items()}
