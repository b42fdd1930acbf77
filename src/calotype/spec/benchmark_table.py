"""A table of benchmarks: rows of overrides over one recipe, each with a name. Runs nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

RowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
"""It becomes the name of a file."""


class BenchmarkTable(BaseModel):
    """What to run, one row after the other."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    recipe: str
    """A recipe's name, or a YAML file."""
    overrides: tuple[str, ...] = ()
    """For every row, as on the command line."""
    rows: Annotated[dict[RowName, tuple[str, ...]], Field(min_length=1)]
    """By name, each with overrides of its own."""
    steps: Annotated[int, Field(ge=1)] = 30
    warmup_steps: Annotated[int, Field(ge=0)] = 10
