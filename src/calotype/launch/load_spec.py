"""Reads a launch spec from a YAML file, options and `a.b=c` overrides, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calotype.core.errors import NotFoundError
from calotype.spec.launch import LaunchSpec
from calotype.spec.overrides import merge, parse_overrides, parse_yaml


def read_spec(
    file: Path | None,
    given: Mapping[str, Any],
    overrides: Sequence[str] = (),
    usual: Mapping[str, Any] | None = None,
) -> LaunchSpec:
    """Merge defaults, file, options and overrides, and parse the result; reports every problem at once."""
    values: dict[str, Any] = dict(usual or {})
    if file is not None:
        if not file.is_file():
            raise NotFoundError(
                f"no file {str(file)!r}; --launch-file takes a YAML file of a launch's settings"
            )
        merge(values, parse_yaml(file.read_bytes(), str(file)))
    merge(values, given)
    merge(values, parse_overrides(overrides))
    return LaunchSpec.parse(values)
