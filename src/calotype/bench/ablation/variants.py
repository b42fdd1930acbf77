"""Variants of one configuration as points of a sweep. Knows nothing of what is varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from calotype.bench.sweep.points import points_of
from calotype.spec.measurement import VARIANT, VARIANTS_APART, Setting
from calotype.spec.measurement_job import Point
from calotype.spec.measurement_sweep import Sweep

How = Literal["all", "none", "without", "with", "only"]


@dataclass(frozen=True)
class Variant:
    """The configuration with one thing changed."""

    how: How
    what: str | None
    """The pass or switch; None for all or none of them."""
    settings: Mapping[str, Setting]

    @property
    def label(self) -> str:
        return self.how if self.what is None else f"{self.how} {self.what}"


def variant_points(sweep: Sweep, variants: Sequence[Variant], device: str | None = None) -> dict[str, Point]:
    """Each variant's point by its label; variants that come to the same share one, under all their labels."""
    made: dict[str, Point] = {}
    for variant in variants:
        varied = sweep.model_copy(update={"settings": {**sweep.settings, **variant.settings}})
        (made[variant.label],) = points_of(varied, device=device)
    labels: dict[str, list[str]] = {}
    for label, point in made.items():
        labels.setdefault(point.id, []).append(label)
    return {label: _named(point, VARIANTS_APART.join(labels[point.id])) for label, point in made.items()}


def _named(point: Point, name: str) -> Point:
    return point.model_copy(update={"name": name, "settings": {VARIANT: name}})
