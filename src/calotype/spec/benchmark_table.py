"""Benchmark tables: named rows of overrides over one recipe."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

RowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
"""Also the name of a file."""


class BenchmarkTable(BaseModel):
    """A benchmark table, run row by row."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    recipe: str
    """Recipe name or YAML file."""
    overrides: tuple[str, ...] = ()
    """Overrides of every row, as on the command line."""
    rows: Annotated[dict[RowName, tuple[str, ...]], Field(min_length=1)]
    """Overrides by row name."""
    steps: Annotated[int, Field(ge=1)] = 30
    warmup_steps: Annotated[int, Field(ge=0)] = 10
