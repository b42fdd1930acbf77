"""A preset's passes, each taken away and each alone. Applies nothing.

A pass goes together with those that build on it, and comes with those that it builds on.
"""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.ablation.variants import Variant
from calotype.engine.passes import Pass
from calotype.engine.presets import CUSTOM, PASSES, pass_names


def pass_variants(preset: str, device_type: str) -> list[Variant]:
    """Everything, nothing, and of each pass that concerns the device: without it, and it alone."""
    names = pass_names(preset, device_type)
    variants = [Variant("all", None, {"preset": preset}), Variant("none", None, {"preset": CUSTOM})]
    variants += [Variant("without", name, _asked(_without(names, name))) for name in names]
    return variants + [Variant("only", name, _asked(_alone(names, name))) for name in names]


def _asked(names: Sequence[str]) -> dict[str, str]:
    return {"preset": CUSTOM + "+".join(names)}


def _without(names: Sequence[str], gone: str) -> list[str]:
    return [name for name in names if gone not in _foundations(PASSES[name]) | {name}]


def _alone(names: Sequence[str], kept: str) -> list[str]:
    return [name for name in names if name in _foundations(PASSES[kept]) | {kept}]


def _foundations(one: Pass) -> set[str]:
    """All that a pass builds on, however far down."""
    return {name for below in one.after for name in (_foundations(PASSES[below]) | {below})}
