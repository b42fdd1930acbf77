"""A sweep as it is written: which settings are varied, over what, how often. Runs nothing.

Every combination of the axes' values is a point; listed points are combined with the axes too.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calotype.spec.bench_job import System
from calotype.spec.records.measurement import Setting

Values = Annotated[tuple[Setting, ...], Field(min_length=1)]


class Sweep(BaseModel):
    """What to measure."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["inference", "train"]
    about: str = ""
    """What it is for, in a sentence."""
    settings: dict[str, Setting] = {}
    """For every point: model, batch, size, steps, cfg, preset, …; or a recipe and its dotted keys."""
    axes: dict[str, Values] = {}
    """Settings that vary, each with its values."""
    points: tuple[dict[str, Setting], ...] = ({},)
    """Settings that vary together."""
    systems: Annotated[tuple[System, ...], Field(min_length=1)] = ("calotype",)
    """Whose pictures or steps: ours, and peers beside them."""
    rounds: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often to go over all points."""
    units: Annotated[int, Field(ge=1)] | None = None
    """Batches or steps by the clock; 5 batches, or 30 steps, if not said."""
    warmup: Annotated[int, Field(ge=0)] | None = None
    """Batches or steps before; 2 batches, or 10 steps, if not said."""
