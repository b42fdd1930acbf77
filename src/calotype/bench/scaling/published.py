"""Loads published scaling points: MosaicML Composer on up to 64 nodes of 8 H100.

The published script gives each GPU the global batch divided by the number of GPUs, without the remainder; we
assume that images per second count the trained images.
"""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.references.load import entries
from calotype.bench.references.types import Entry
from calotype.bench.scaling.fit import Observed
from calotype.bench.scaling.model import Load

CHART = "aws-mosaicml-charts/throughput"
TABLE = "aws-mosaicml/single-node"


def published() -> list[Observed]:
    """Return the table of one node by micro-batch, and the chart over nodes."""
    table = [e for e in entries() if e.id.startswith(TABLE) and e.id.endswith("P5 Throughput")]
    chart = [e for e in entries() if e.id.startswith(CHART)]
    return [_point(entry) for entry in (*table, *chart) if entry.settings.ema]


def of_chart(point: Observed) -> bool:
    return point.name.startswith(CHART)


def up_to(nodes: int, points: Sequence[Observed]) -> list[Observed]:
    """Return the points with at most `nodes` nodes."""
    return [point for point in points if point.load.nodes <= nodes]


def _point(entry: Entry) -> Observed:
    settings = entry.settings
    nodes, each_node = settings.num_nodes or 1, settings.gpus_per_node or 1
    assert settings.global_batch is not None
    assert settings.micro_batch is not None
    load = Load(nodes, each_node, settings.global_batch // (nodes * each_node), settings.micro_batch)
    throughput = next(figure.value for figure in entry.figures if figure.what == "throughput")
    return Observed(entry.id, load, load.samples / throughput)
