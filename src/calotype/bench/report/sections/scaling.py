"""The section of scaling studies: measured points, ideal lines, and predictions labeled as such.

The fits come from the record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calotype.bench.report.document import Figure, Section, Table, words
from calotype.bench.report.plots.line_chart import Dot, Line, LineChart, line_chart
from calotype.bench.scaling.published import CHART
from calotype.bench.scaling.report import (
    PREDICTED,
    measured_rows,
    parameter_rows,
    predicted_rows,
    published_rows,
    residual_rows,
)
from calotype.spec.records.scaling import FitRecord, ScalingRecord

_SAYS = (
    "Throughput against the number of GPUs, both axes logarithmic. A prediction is not a measurement: it "
    "comes from a model of a training step (compute, fixed cost, gradient communication, stragglers) fitted "
    "to the points shown. ± is one standard deviation of the fit's uncertainty and covers nothing else."
)
_Places = Sequence[tuple[float, float]]


def scaling_studies(records: Sequence[ScalingRecord]) -> Section:
    figures: list[Figure] = []
    tables: list[Table] = []
    for count, record in enumerate(records, start=1):
        figures += _figures(record, count)
        tables += _tables(record)
    # The published points are the same in every record.
    if records and records[0].published:
        figures.append(_published_figure(records[0]))
        tables.append(
            _table(
                f"Published points against the same model ({PREDICTED} where marked).",
                published_rows(records[0]),
            )
        )
        tables += [_parameters(fit) for fit in records[0].published]
    return Section("scaling-study", "Scaling study", _SAYS, figures=tuple(figures), tables=tuple(tables))


def _figures(record: ScalingRecord, count: int) -> list[Figure]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in record.measured:
        name = f"measured, {one.mode}"
        if one.mode == "strong":
            name += f", batch {one.samples_per_gpu * one.gpus}"
        lines.setdefault(name, []).append((one.gpus, one.samples_per_s))
    for guess in record.predictions:
        lines.setdefault(f"prediction, {guess.mode}", []).append((guess.gpus, guess.samples_per_s))
    if not lines:
        return []
    title = f"Throughput against GPUs: {record.title}"
    figure = _figure(f"scaling-study-{count}", title, lines, "samples/s", record)
    return [replace(figure, says=" ".join([figure.says, *(f"{note}." for note in record.notes)]))]


def _published_figure(record: ScalingRecord) -> Figure:
    charts = {
        fit.about: [one for one in fit.points if one.name.startswith(CHART)] for fit in record.published
    }
    lines: dict[str, list[tuple[float, float]]] = {}
    for about, points in charts.items():
        lines.setdefault("published", [(one.gpus, one.samples_per_s) for one in points])
        guesses = [(float(one.gpus), one.by_model) for one in points if not one.fitted]
        if guesses:
            lines[f"prediction from {about.removeprefix('published, ')}"] = guesses
    title = "Throughput against GPUs: SD 2-base on P5 nodes, published"
    return _figure("scaling-published", title, lines, "images/s", record)


def _figure(name: str, title: str, lines: Mapping[str, _Places], unit: str, record: ScalingRecord) -> Figure:
    everything = sorted({place for places in lines.values() for place in places})
    first = min(next(iter(lines.values())))
    most = everything[-1][0]
    ideal = (first, (most, first[1] / first[0] * most))
    counts = sorted({gpus for gpus, _ in everything})
    # Only doublings leave room for tick labels.
    doublings = [gpus for gpus in counts if math.log2(gpus / counts[0]).is_integer()]
    ticks = {float(gpus): f"{gpus:g}" for gpus in (doublings if counts[-1] in doublings else counts)}
    devices = "CPU ranks" if unit == "samples/s" and (record.device or "").startswith("CPU") else "GPUs"
    drawn = line_chart(
        LineChart(
            title=title,
            description=f"{unit} over GPUs: {'; '.join(lines)}; dashed: linear scaling",
            x_label=f"{devices}, logarithmic",
            y_label=f"{unit}, logarithmic",
            ticks=ticks,
            lines=tuple(
                Line(label, tuple(Dot(x, y, y, y) for x, y in sorted(places)))
                for label, places in lines.items()
            ),
            x_kind="log",
            y_kind="log",
            ideal=ideal if most > first[0] else (),
            ideal_label="linear scaling",
        )
    )
    rows = [
        {"GPUs": f"{x:g}", "line": label, unit: f"{y:.4g}"}
        for label, places in lines.items()
        for x, y in places
    ]
    return Figure(name, title, f"{title}.", drawn, _table(f"{title}: data.", rows), (record.command,))


def _tables(record: ScalingRecord) -> list[Table]:
    result = []
    if record.measured:
        result.append(_table(f"Measured: {record.title}.", measured_rows(record)))
    if record.fit:
        result += [
            _parameters(record.fit),
            _table("Fit and residuals of each point.", residual_rows(record.fit)),
        ]
    if record.predictions:
        result.append(_table(f"{record.title}: {PREDICTED}.", predicted_rows(record)))
    return result


def _parameters(fit: FitRecord) -> Table:
    caption = f"Model of a step fitted to {fit.about}: RMS error {fit.error:.1%}."
    if fit.vague:
        names = ", ".join(name.removesuffix("_s").replace("_", " ") for name in fit.vague)
        caption += f" Not determined by the points: {names}."
    return _table(caption, parameter_rows(fit))


def _table(caption: str, rows: Sequence[Mapping[str, str]]) -> Table:
    columns = tuple(rows[0]) if rows else ()
    return Table(
        caption, columns, tuple(tuple(words(cell) for cell in row.values()) for row in rows), still=True
    )
