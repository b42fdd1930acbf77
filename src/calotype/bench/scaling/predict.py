"""Computes a scaling study: the fitted model, its predictions, and its accuracy on published points.

The record keeps `predictions` separate from measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite

from calotype.bench.scaling.fit import Fit, Observed, fit_known_parameters
from calotype.bench.scaling.model import Load, StepModel
from calotype.bench.scaling.observations import observed, scaled, spread_of, usable
from calotype.bench.scaling.published import published, up_to
from calotype.spec.records.measurement import Measurement
from calotype.spec.records.scaling import (
    FitRecord,
    FittedPoint,
    LinksRecord,
    Mode,
    Parameter,
    Prediction,
    ScalingRecord,
    Source,
)

NODES = (1, 2, 4, 8, 16, 32, 64)
GPUS_PER_NODE = 8


@dataclass(frozen=True)
class PredictionRequest:
    """The input of a study."""

    command: str
    given: dict[str, float] = field(default_factory=dict)
    """Known parameters of the model."""
    nodes: Sequence[int] = NODES
    gpus_per_node: int = GPUS_PER_NODE


def parameters_of(links: LinksRecord, gradient_gb: float) -> dict[str, float]:
    """Convert measured links to model parameters, for `gradient_gb` of gradients per step."""
    parameters: dict[str, float] = {}
    for name, link in (("inside", links.inside), ("between", links.between)):
        if link is not None:
            parameters |= {f"{name}_s": gradient_gb / link.gb_s, f"{name}_latency_s": link.latency_s}
    return parameters


def study(measurements: Sequence[Measurement], request: PredictionRequest) -> ScalingRecord:
    """Study our measurements, if any, and the published points."""
    ours = usable(measurements)
    points, notes = observed(ours), []
    sources: dict[str, Source] = dict.fromkeys(request.given, "given")
    given = StepModel(**request.given)
    spread = spread_of(ours)
    if spread is not None and "spread_s" not in request.given:
        given, sources = replace(given, spread_s=spread), {**sources, "spread_s": "measured"}
    found = None
    if len({point.load for point in points}) > 1:
        found = fit_known_parameters(points, given, sources)
    elif points:
        notes.append("only one load was measured; fitting the model of a step needs at least two")
    predictions = _predictions(found, points, request) if found else []
    if found and all(point.load.nodes == 1 for point in points) and "between_s" not in sources:
        notes.append(
            "no point has more than one node and no bandwidth between nodes was given, so the predictions "
            "assume that communication between nodes is free"
        )
    if ours and ours[0].device.startswith("CPU"):
        notes.append(f"a GPU in this study is a rank on cores of a {ours[0].device}; no GPU was measured")
    return ScalingRecord(
        title=_title(ours),
        command=request.command,
        created=datetime.now(UTC),
        device=ours[0].device if ours else None,
        measured=scaled(points),
        fit=_recorded("our points", found, points, sources) if found else None,
        predictions=predictions,
        published=_published(),
        notes=notes,
    )


def _title(measurements: Sequence[Measurement]) -> str:
    if not measurements:
        return "published points only"
    first = measurements[0]
    return f"{first.model} on {first.device}"


def _predictions(found: Fit, points: Sequence[Observed], request: PredictionRequest) -> list[Prediction]:
    """Predict from the largest load measured on the fewest GPUs."""
    fewest = min(point.load.gpus for point in points)
    base = max((p.load for p in points if p.load.gpus == fewest), key=lambda load: load.samples_per_gpu)
    first = base.over(request.nodes[0], request.gpus_per_node)
    # Strong scaling divides the load of the first until each GPU has one micro-batch.
    most = max(request.nodes) // request.nodes[0] * base.micro_batch
    shared = replace(first, samples_per_gpu=max(first.samples_per_gpu, most))
    modes: dict[Mode, tuple[Load, list[Load]]] = {
        "weak": (first, [first.over(n, request.gpus_per_node) for n in request.nodes]),
        "strong": (shared, [shared.shared_by(n, request.gpus_per_node) for n in request.nodes]),
    }
    return [
        Prediction(
            mode=mode,
            nodes=load.nodes,
            gpus_per_node=load.gpus_per_node,
            samples_per_gpu=load.samples_per_gpu,
            samples_per_s=found.model.samples_per_s(load),
            uncertainty=_finite(found.uncertainty_of(load)),
            efficiency=found.model.efficiency(load, begin),
            parts=found.model.parts(load),
        )
        for mode, (begin, loads) in modes.items()
        for load in loads
    ]


def _published() -> list[FitRecord]:
    """Fit the published points of up to 2, 8 and 64 nodes."""
    points, found = published(), []
    for most in (2, 8, 64):
        fitted = fit_known_parameters(up_to(most, points), StepModel())
        found.append(_recorded(f"published, up to {most} nodes", fitted, points, {}))
    return found


def _recorded(about: str, found: Fit, points: Sequence[Observed], sources: Mapping[str, Source]) -> FitRecord:
    fitted_on = {residual.point for residual in found.residuals}
    return FitRecord(
        about=about,
        parameters=[
            Parameter(
                name=name,
                value=value,
                source=_source(name, value, found, sources),
                uncertainty=_finite(found.uncertainty.get(name)),
            )
            for name, value in found.model.as_dict().items()
        ],
        error=found.error,
        vague=list(found.vague),
        points=[
            FittedPoint(
                name=point.name,
                nodes=point.load.nodes,
                gpus_per_node=point.load.gpus_per_node,
                samples_per_gpu=point.load.samples_per_gpu,
                micro_batch=point.load.micro_batch,
                samples_per_s=point.samples_per_s,
                by_model=found.model.samples_per_s(point.load),
                uncertainty=_finite(found.uncertainty_of(point.load)),
                fitted=point in fitted_on,
            )
            for point in points
        ],
    )


def _source(name: str, value: float, found: Fit, sources: Mapping[str, Source]) -> Source:
    if name in found.free:
        return "fitted"
    return sources.get(name, "none" if value == 0 else "given")


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
