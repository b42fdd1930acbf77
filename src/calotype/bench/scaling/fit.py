"""Fits a step model to measured steps by non-negative least squares of relative errors.

Given parameters stay fixed. The uncertainty of each parameter shows what the points do not determine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calotype.bench.scaling.model import Load, StepModel
from calotype.core.errors import Problem, RequestError

FITTED = (
    "per_sample_s",
    "per_micro_batch_s",
    "fixed_s",
    "inside_s",
    "between_s",
    "inside_latency_s",
    "between_latency_s",
    "spread_s",
)
_ALWAYS = ("per_sample_s", "fixed_s")
"""Parameters that are never left out: without them a model would predict unlimited scaling."""
_OF_LINKS = ("inside_s", "between_s", "inside_latency_s", "between_latency_s")
_LINKS = (0.0, 1.0, 100.0)
"""Initial link times of the search, in multiples of the time of one sample."""
_VAGUE = 1.0


@dataclass(frozen=True)
class Observed:
    """One measured step time."""

    name: str
    load: Load
    step_s: float

    @property
    def samples_per_s(self) -> float:
        return self.load.samples / self.step_s


@dataclass(frozen=True)
class Residual:
    point: Observed
    step_s: float
    """Step time predicted by the model."""

    @property
    def relative(self) -> float:
        return self.step_s / self.point.step_s - 1


@dataclass(frozen=True)
class Fit:
    model: StepModel
    free: tuple[str, ...]
    """Fitted parameters; the others are given or zero."""
    covariance: tuple[tuple[float, ...], ...] | None
    """Covariance of the free parameters from the linearized model; None if undetermined."""
    residuals: tuple[Residual, ...]

    @property
    def error(self) -> float:
        """Root mean square relative error of the step times."""
        return math.sqrt(math.fsum(one.relative**2 for one in self.residuals) / len(self.residuals))

    @property
    def uncertainty(self) -> dict[str, float]:
        """Standard deviation of each free parameter; infinite if undetermined."""
        if self.covariance is None:
            return dict.fromkeys(self.free, math.inf)
        return {name: math.sqrt(self.covariance[i][i]) for i, name in enumerate(self.free)}

    def uncertainty_of(self, load: Load) -> float:
        """Relative standard deviation of the model's step time, without measurement errors."""
        if self.covariance is None:
            return math.inf
        at, here = self.model.step_s(load), self.model.as_dict()
        nudge = 1e-6 * at
        slopes = [
            (replace(self.model, **{name: here[name] + nudge}).step_s(load) - at) / nudge
            for name in self.free
        ]
        places = range(len(slopes))
        variance = math.fsum(slopes[i] * slopes[j] * self.covariance[i][j] for i in places for j in places)
        return math.sqrt(max(0.0, variance)) / at

    @property
    def vague(self) -> tuple[str, ...]:
        """Non-zero parameters whose uncertainty is as large as their value."""
        values = self.model.as_dict()
        return tuple(
            name
            for name in self.free
            if values[name] > 1e-9 and not self.uncertainty[name] < _VAGUE * values[name]
        )


def parameters_in(points: Sequence[Observed]) -> tuple[str, ...]:
    """Return the parameters that can affect these points."""
    loads = [point.load for point in points]
    names = ["per_sample_s"]
    shapes = {(load.micro_batches, load.samples_per_gpu) for load in loads}
    if len({micro / samples for micro, samples in shapes}) > 1:
        names.append("per_micro_batch_s")
    if len({samples for _, samples in shapes}) > 1:
        names.append("fixed_s")
    # A cost equal in all points is a fixed cost; separating latency from bandwidth needs several ring sizes.
    for name, counts in (
        ("inside", {load.gpus_per_node for load in loads}),
        ("between", {load.nodes for load in loads}),
    ):
        if len(counts) > 1:
            names.append(f"{name}_s")
        if len(counts) > 2:
            names.append(f"{name}_latency_s")
    if len({load.gpus for load in loads}) > 2:
        names.append("spread_s")
    return tuple(name for name in FITTED if name in names)


def fit_known_parameters(points: Sequence[Observed], given: StepModel, known: Collection[str] = ()) -> Fit:
    """Fit the model with as many parameters as the points support, besides the `known` ones.

    More parameters always fit better but soon overfit, so the least useful one is dropped as long as that
    lowers Akaike's criterion (corrected for few points, Hurvich and Tsai 1989).
    """
    names = [name for name in parameters_in(points) if name not in known]
    best = fit(points, given, names[: max(1, len(points) - 2)])
    while True:
        droppable = [name for name in best.free if name not in _ALWAYS]
        fewer = [fit(points, given, [n for n in best.free if n != name]) for name in droppable]
        better = min(fewer, key=_criterion, default=None)
        if better is None or _criterion(better) >= _criterion(best):
            return best
        best = better


def _criterion(found: Fit) -> float:
    number, parameters = len(found.residuals), len(found.free)
    if number - parameters < 2:
        return math.inf
    # Smaller errors are rounding errors.
    squares = max(found.error**2, 1e-16)
    return number * math.log(squares) + 2 * parameters * number / (number - parameters - 1)


def fit(points: Sequence[Observed], given: StepModel, free: Sequence[str]) -> Fit:
    """Fit the `free` parameters to the points."""
    names = tuple(free)
    if len(points) < max(1, len(names)):
        rule = f"{len(points)} points cannot determine {len(names)} parameters ({', '.join(names)})"
        raise RequestError(
            [Problem("points", f"{rule}; measure more points or give some parameters", len(points))]
        )
    if not names:
        return _with_residuals(points, given, (), ())
    best = _search(points, given, names)
    effective = tuple(name for name, share in zip(names, abs(best.jac).max(axis=0), strict=True) if share > 0)
    if effective != names:
        # Parameters without effect on any point are dropped; they must not make the others uncertain.
        return fit(points, given, effective)
    model = replace(given, **dict(zip(names, (float(value) for value in best.x), strict=True)))
    return _with_residuals(points, model, names, _covariance(best, len(points)))


def _search(points: Sequence[Observed], given: StepModel, names: Sequence[str]) -> Any:
    """Return the best of several searches with fast and slow links, because the model has a kink."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - slow to load

    typical = min(point.step_s / point.load.samples_per_gpu for point in points)

    def at(values: Sequence[float]) -> StepModel:
        return replace(given, **dict(zip(names, map(float, values), strict=True)))

    def errors(values: Sequence[float]) -> list[float]:
        model = at(values)
        return [model.step_s(point.load) / point.step_s - 1 for point in points]

    def slopes(values: Sequence[float]) -> list[list[float]]:
        model, found = at(values), []
        for point in points:
            each = model.slopes(point.load)
            found.append([each[name] / point.step_s for name in names])
        return found

    found = []
    for links in _LINKS:
        start = _initial_values(
            points, replace(given, **{name: links * typical for name in names if name in _OF_LINKS}), names
        )
        scale = [typical if name == "per_sample_s" else 0.1 * typical for name in names]
        limits = (0.0, math.inf)
        found.append(
            least_squares(errors, start, slopes, bounds=limits, x_scale=scale, xtol=1e-12, max_nfev=200)
        )
    return min(found, key=lambda one: float(one.cost))


def _initial_values(points: Sequence[Observed], model: StepModel, names: Sequence[str]) -> list[float]:
    """Return the best linear fit, with every exchange hidden or exposed as in `model`."""
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to load

    rows, targets = [], []
    for point in points:
        slopes, values = model.slopes(point.load), model.as_dict()
        known = sum(slopes[name] * values[name] for name in slopes if name not in names)
        rows.append([slopes[name] / point.step_s for name in names])
        targets.append(1 - known / point.step_s)
    # The search requires values strictly inside the bounds.
    return [float(value) + 1e-12 for value in nnls(rows, targets)[0]]


def _covariance(found: Any, num_points: int) -> tuple[tuple[float, ...], ...] | None:
    """Estimate the covariance from the curvature at the best fit and the residuals."""
    from scipy.linalg import pinvh, svdvals  # noqa: PLC0415 - slow to load

    curvature = found.jac.T @ found.jac
    places = range(len(curvature))
    scales = [float(curvature[i][i]) ** 0.5 for i in places]
    correlation = [[float(curvature[i][j]) / (scales[i] * scales[j]) for j in places] for i in places]
    if num_points == len(scales) or svdvals(correlation)[-1] < 1e-12:
        return None
    inverse = pinvh(correlation)
    variance = 2 * float(found.cost) / (num_points - len(scales))
    return tuple(
        tuple(variance * float(inverse[i][j]) / (scales[i] * scales[j]) for j in places) for i in places
    )


def _with_residuals(
    points: Sequence[Observed],
    model: StepModel,
    free: tuple[str, ...],
    covariance: tuple[tuple[float, ...], ...] | None,
) -> Fit:
    residuals = tuple(Residual(point, model.step_s(point.load)) for point in points)
    return Fit(model, free, covariance, residuals)
