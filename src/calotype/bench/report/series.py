"""Groups points that differ in one setting only into the lines of a chart, and labels them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calotype.bench.report.aggregate import PointView, run_of
from calotype.spec.records.measurement import VARIANT, identity_of

_Format = Callable[[Any], str]


@dataclass(frozen=True)
class Axis:
    """A setting that varies along a line."""

    name: str
    free: tuple[str, ...]
    """The facets that vary with it."""
    value: Callable[[PointView], float | None]
    told: Callable[[PointView], str]


def _pixels(point: PointView) -> float | None:
    return point.size[0] * point.size[1] / 1e6 if point.size else None


BATCH = Axis("batch", ("batch",), lambda p: p.batch, lambda p: str(p.batch))
SIZE = Axis("size", ("size",), _pixels, lambda p: str(p.facets["size"]))
STEPS = Axis("steps", ("steps",), lambda p: p.steps, lambda p: str(p.steps))
CFG = Axis("cfg", ("cfg",), lambda p: p.cfg, lambda p: f"{p.cfg:g}")
GPUS = Axis("gpus", ("gpus", "trainer.devices", "trainer.nodes"), lambda p: p.gpus, lambda p: str(p.gpus))


@dataclass(frozen=True)
class Bundle:
    """Points along an axis, in order."""

    points: tuple[PointView, ...]
    facets: Mapping[str, Any]


@dataclass(frozen=True)
class Chart:
    """Bundles of one kind of work on one model, each with a label."""

    kind: str
    model: str
    bundles: tuple[Bundle, ...]
    labels: tuple[str, ...]
    shared: str
    """Settings that all bundles share."""

    @property
    def points(self) -> list[PointView]:
        return [point for bundle in self.bundles for point in bundle.points]


def charts(points: Iterable[PointView], axis: Axis, most: int) -> list[Chart]:
    """Return charts of at most `most` lines for each kind and model with two or more values on the axis."""
    groups: dict[tuple[str, str], list[PointView]] = {}
    for point in points:
        if axis.value(point) is not None and point.variant is None:
            groups.setdefault((point.first.kind, point.first.model), []).append(point)
    result = []
    for (kind, model), group in groups.items():
        bundles = _bundles(group, axis)
        for start in range(0, len(bundles), most):
            part = bundles[start : start + most]
            result.append(Chart(kind, model, tuple(part), tuple(labels(part)), shared(part)))
    return result


def _bundles(points: Sequence[PointView], axis: Axis) -> list[Bundle]:
    groups: dict[str, list[PointView]] = {}
    for point in points:
        fixed = {key: value for key, value in point.facets.items() if key not in axis.free}
        groups.setdefault(identity_of({**fixed, "rest": point.rest}), []).append(point)
    return [
        Bundle(
            tuple(sorted(group, key=lambda p: axis.value(p) or 0)),
            {key: value for key, value in group[0].facets.items() if key not in axis.free},
        )
        for group in groups.values()
        if len({axis.value(point) for point in group}) > 1 and any(point.seconds for point in group)
    ]


def labels(bundles: Sequence[Bundle]) -> list[str]:
    """Label each bundle by the facets that differ, and by its run where none does."""
    keys = dict.fromkeys(key for bundle in bundles for key in bundle.facets)
    differing = [key for key in keys if len({str(bundle.facets.get(key)) for bundle in bundles}) > 1]
    names = [
        ", ".join(filter(None, (_format_facet(key, bundle.facets.get(key)) for key in differing)))
        for bundle in bundles
    ]
    if len(set(names)) == len(names):
        return names
    files = [run_of(bundle.points[0].rounds[0].file) for bundle in bundles]
    return [f"{name} {file}".strip() for name, file in zip(names, files, strict=True)]


def shared(bundles: Sequence[Bundle]) -> str:
    keys = dict.fromkeys(key for bundle in bundles for key in bundle.facets)
    same = [key for key in keys if len({str(bundle.facets.get(key)) for bundle in bundles}) == 1]
    return ", ".join(filter(None, (_format_facet(key, bundles[0].facets.get(key)) for key in same)))


def _format_facet(key: str, value: Any) -> str:
    if value is None:
        return ""
    return _FORMATS[key](value) if key in _FORMATS else f"{key}={value}"


_FORMATS: dict[str, _Format] = {
    "software": str,
    "precision": str,
    "size": str,
    "device": str,
    "data": str,
    VARIANT: str,
    "batch": lambda value: f"batch {value}",
    "steps": lambda value: "1 step" if value == 1 else f"{value} steps",
    "cfg": lambda value: f"cfg {value:g}",
    "gpus": lambda value: f"{value} GPU" if value == 1 else f"{value} GPUs",
    "EMA": lambda value: "EMA" if value else "no EMA",
}


def name_of(point: PointView) -> str:
    """Describe a point for a reader who does not know the sweep."""
    facets = {key: value for key, value in point.facets.items() if key not in ("device", "gpus")}
    return ", ".join(filter(None, (_format_facet(key, value) for key, value in facets.items())))
