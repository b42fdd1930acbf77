"""Parses a part's configuration and fills in defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Settings(dict[str, Any]):
    """Settings with access by item or by attribute, as in the libraries' configurations."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no setting {name!r}") from None


def with_defaults(
    config: Mapping[str, Any], free: Mapping[str, Any], fixed: Mapping[str, Any], ignored: Sequence[str] = ()
) -> Settings | None:
    """Merge the configuration with defaults; None if it has unsupported settings.

    `free` maps settings that may have any value to their defaults. `fixed` maps settings to their only
    supported value. `ignored` settings affect neither weights nor results.
    """
    given = {key: value for key, value in config.items() if not key.startswith("_")}
    if any(key not in free and key not in fixed and key not in ignored for key in given):
        return None
    if any(given.get(key, value) != value for key, value in fixed.items()):
        return None
    return Settings({**fixed, **free, **given, "_class_name": config["_class_name"]})


def for_each(value: Any, count: int) -> list[Any]:
    """One value for each of `count` blocks; a single value applies to all."""
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ValueError(f"{len(values)} values for {count} blocks: {values}")
    return values
