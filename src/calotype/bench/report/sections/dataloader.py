"""The data loading section: samples per second by number of workers, and how many GPUs that feeds."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.report.aggregate import PointView
from calotype.bench.report.document import Table, number, table, words

_HEADS = ("workers", "data", "samples/s", "samples/s per core", "feeds")


def dataloader(points: Sequence[PointView]) -> list[Table]:
    """Return one table, or none without measurements."""
    rows = []
    for point in points:
        if point.first.kind != "data" or point.rate is None:
            continue
        cpu = point.good[0].series["cpu_per_sample"].summary.median
        rows.append(
            (
                number(float(str(point.first.settings["workers"])), ".0f"),
                words(f"{point.first.settings['data.kind']} for {point.first.model}"),
                number(point.rate.middle),
                number(1 / cpu),
                words("; ".join(point.first.notes)),
            )
        )
    return [table("Batches read and prepared on the CPU, without training.", _HEADS, rows)] if rows else []
