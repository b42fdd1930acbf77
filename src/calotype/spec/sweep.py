"""Sweep definitions: which settings vary, over which values, how often.

Every combination of axis values is a point; listed points are combined with the axes too.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calotype.spec.bench_job import System
from calotype.spec.records.measurement import Setting

Values = Annotated[tuple[Setting, ...], Field(min_length=1)]


class Sweep(BaseModel):
    """A sweep."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["inference", "train"]
    about: str = ""
    """Purpose, in one sentence."""
    settings: dict[str, Setting] = {}
    """Settings of all points: model, batch, size, steps, cfg, preset, …; or a recipe and its dotted keys."""
    axes: dict[str, Values] = {}
    """Varied settings with their values."""
    points: tuple[dict[str, Setting], ...] = ({},)
    """Combinations of settings that vary together."""
    systems: Annotated[tuple[System, ...], Field(min_length=1)] = ("calotype",)
    """Systems to measure: ours and baselines."""
    rounds: Annotated[int, Field(ge=1, le=1000)] = 1
    """Rounds over all points."""
    units: Annotated[int, Field(ge=1)] | None = None
    """Measured batches or steps. Default: 5 batches or 30 steps."""
    warmup: Annotated[int, Field(ge=0)] | None = None
    """Warm-up batches or steps. Default: 2 batches or 10 steps."""
