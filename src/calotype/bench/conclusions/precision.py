"""Derives the gain of lower precision: stated, measured, and allowed by the device's rates."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.conclusions.group_by import group_except, with_speed
from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.types import Entry

_HALF, _FEWER = ("fp16", "bf16"), ("int8", "fp8")


def precision_gains(entries: Sequence[Entry]) -> list[Statement]:
    """Compare INT8 and FP8 with half precision."""
    return _stated(entries) + _measured(entries)


def _stated(entries: Sequence[Entry]) -> list[Statement]:
    statements = []
    for entry in entries:
        for figure in entry.figures:
            if figure.what == "ratio" and figure.of == "FP16":
                name = str(entry.settings.precision).upper()
                statements.append(
                    Statement(
                        topic="precision",
                        source=entry.source,
                        says=f"{name} over FP16 on {entry.settings.gpu}: {figure.value:.2f}×, as stated",
                        value=figure.value,
                        unit="×",
                        arithmetic="stated as a ratio; the source gives no times to derive it from",
                        inputs=(entry.id,),
                        notes=doubts((entry,)),
                    )
                )
    return statements


def _measured(entries: Sequence[Entry]) -> list[Statement]:
    statements = []
    for group in group_except(entries, "precision", "switches"):
        runs = with_speed(group)
        half = [run for run in runs if run[0].settings.precision in _HALF]
        for name in _FEWER:
            fewer = [run for run in runs if run[0].settings.precision == name]
            if half and fewer:
                statements.append(_gain(max(fewer, key=_speed), max(half, key=_speed)))
    return statements


def _speed(run: tuple[Entry, float]) -> float:
    return run[1]


def _gain(fewer: tuple[Entry, float], half: tuple[Entry, float]) -> Statement:
    ratio = fewer[1] / half[1]
    names = [str(run[0].settings.precision).upper() for run in (fewer, half)]
    where = "the device's best rate" if fewer[0].settings.work == "kernel" else "the fastest of each"
    return Statement(
        topic="precision",
        source=fewer[0].source,
        says=f"{names[0]} over {names[1]} on {fewer[0].settings.gpu}: {ratio:.2f}×, {where}",
        value=ratio,
        unit="×",
        arithmetic=f"{fewer[1]:.4g} / {half[1]:.4g} = {ratio:.4f}",
        inputs=(fewer[0].id, half[0].id),
        notes=doubts((fewer[0], half[0])),
    )
