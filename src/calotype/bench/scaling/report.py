"""Formats a scaling record as rows of text: measured, fitted, predicted and published points."""

from __future__ import annotations

from calotype.bench.scaling.published import CHART
from calotype.spec.records.scaling import FitRecord, Parameter, Prediction, ScalingRecord

Row = dict[str, str]
PREDICTED = "prediction, not measured"


def measured_rows(record: ScalingRecord) -> list[Row]:
    return [
        {
            "scaling": one.mode,
            "nodes × GPUs": f"{one.nodes} × {one.gpus_per_node}",
            "samples/GPU": str(one.samples_per_gpu),
            "samples/s": f"{one.samples_per_s:.4g}",
            "efficiency": f"{one.efficiency:.1%}",
        }
        for one in record.measured
    ]


def parameter_rows(fit: FitRecord) -> list[Row]:
    """Return the model's parameters and their uncertainty."""
    return [_parameter(one) for one in fit.parameters if one.source != "none"]


def _parameter(one: Parameter) -> Row:
    scale, unit = (1.0, "share") if one.name == "overlap" else (1e3, "ms")
    known = "" if one.uncertainty is None else f"± {one.uncertainty * scale:.3g}"
    return {
        "parameter": one.name.removesuffix("_s").replace("_", " "),
        "value": f"{one.value * scale:.4g} {unit}",
        "uncertainty": known or ("undetermined" if one.source == "fitted" else ""),
        "from": one.source,
    }


def residual_rows(fit: FitRecord) -> list[Row]:
    """Return every point with the model's value."""
    return [
        {
            "point": one.name,
            "nodes × GPUs": f"{one.nodes} × {one.gpus_per_node}",
            "samples/GPU": str(one.samples_per_gpu),
            "samples/s": f"{one.samples_per_s:.4g}",
            "model": f"{one.by_model:.4g}",
            "error": f"{one.error:+.1%}",
        }
        for one in fit.points
    ]


def predicted_rows(record: ScalingRecord) -> list[Row]:
    """Return our predictions with the published efficiency at the same number of GPUs."""
    published = _published_efficiency(record)
    return [_predicted(one, published) for one in record.predictions]


def _predicted(one: Prediction, published: dict[int, float]) -> Row:
    spread = "" if one.uncertainty is None else f" ± {one.uncertainty:.0%}"
    beside = published.get(one.gpus) if one.mode == "strong" else None
    return {
        "scaling": one.mode,
        "nodes × GPUs": f"{one.nodes} × {one.gpus_per_node}",
        "samples/GPU": str(one.samples_per_gpu),
        "predicted samples/s": f"{one.samples_per_s:.4g}{spread}",
        "predicted efficiency": f"{one.efficiency:.1%}",
        "published efficiency": "" if beside is None else f"{beside:.1%}",
        "step": ", ".join(
            f"{name} {1e3 * value:.3g} ms" for name, value in one.parts.items() if value > 5e-7
        ),
    }


def published_rows(record: ScalingRecord) -> list[Row]:
    """Return the published chart with the values of models fitted on fewer nodes."""
    if not record.published:
        return []
    charts = [[one for one in fit.points if one.name.startswith(CHART)] for fit in record.published]
    efficiency = _published_efficiency(record)
    rows = []
    for number, point in enumerate(charts[0]):
        row = {
            "nodes × GPUs": f"{point.nodes} × {point.gpus_per_node}",
            "micro-batches/GPU": str(-(-point.samples_per_gpu // point.micro_batch)),
            "published images/s": f"{point.samples_per_s:.4g}",
            "efficiency": f"{efficiency[point.gpus]:.1%}",
        }
        for fit, chart in zip(record.published, charts, strict=True):
            one = chart[number]
            spread = "" if one.uncertainty is None or one.fitted else f" ± {one.uncertainty:.0%}"
            what = "fitted" if one.fitted else "predicted"
            head = fit.about.removeprefix("published, ")
            row[f"model of {head}"] = f"{one.by_model:.4g}{spread} ({one.error:+.1%}, {what})"
        rows.append(row)
    return rows


def _published_efficiency(record: ScalingRecord) -> dict[int, float]:
    if not record.published:
        return {}
    points = [one for one in record.published[0].points if one.name.startswith(CHART)]
    base = min(points, key=lambda one: one.gpus)
    return {one.gpus: one.samples_per_s / one.gpus / (base.samples_per_s / base.gpus) for one in points}
