"""Measures the same images without a server: Engine.generate with whole batches of several sizes.

Each batch size is a point of an inference sweep, in its own process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calotype.bench.sweep.points import parse_sweep, points_of
from calotype.bench.sweep.runner import SweepPlan, run_sweep
from calotype.core.errors import CancelledError
from calotype.core.progress import Progress
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.spec.records.measurement import Measurement


def offline(
    plan: DeploymentConfig,
    request: Mapping[str, Any],
    batches: Sequence[int],
    progress: Progress,
    keep: Callable[[Measurement], None],
    *,
    units: int | None = None,
) -> list[Measurement]:
    """Measure each batch size; on cancellation, the finished measurements are kept."""
    settings = {name: request[name] for name in ("steps", "cfg", "sampler", "schedule") if name in request}
    if request.get("width") and request.get("height"):
        settings["size"] = f"{request['width']}x{request['height']}"
    if plan.precision:
        settings["precision"] = plan.precision
    sweep = parse_sweep(
        {
            "kind": "inference",
            "settings": {"model": plan.models[0], "preset": plan.preset, **settings},
            "axes": {"batch": tuple(batches)},
            **({} if units is None else {"units": units}),
        }
    )
    device = None if plan.devices[0] == "auto" else plan.devices[0]
    with tempfile.TemporaryDirectory(prefix="calotype-bench-") as folder:
        points = points_of(sweep, device=device)
        outcome = run_sweep(SweepPlan(points, Path(folder), models=plan.models_folder), progress)
    for measurement in outcome.measurements:
        keep(measurement)
    if not outcome.finished:
        raise CancelledError("cancelled between two batch sizes")
    return outcome.measurements
