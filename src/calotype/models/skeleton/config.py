"""A part's configuration, with what it leaves out filled in. Knows no part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Settings(dict[str, Any]):
    """Read by item or by attribute, as the libraries' configurations are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no setting {name!r}") from None


def with_defaults(
    config: Mapping[str, Any], free: Mapping[str, Any], fixed: Mapping[str, Any], ignored: Sequence[str] = ()
) -> Settings | None:
    """The configuration over defaults; None if it says more than that.

    `free` are settings that may have any value, with what they have unless said. `fixed` are those that may
    be said but not changed, `ignored` those that no weight and no number depends on.
    """
    said = {key: value for key, value in config.items() if not key.startswith("_")}
    if any(key not in free and key not in fixed and key not in ignored for key in said):
        return None
    if any(said.get(key, value) != value for key, value in fixed.items()):
        return None
    return Settings({**fixed, **free, **said, "_class_name": config["_class_name"]})


def for_each(value: Any, count: int) -> list[Any]:
    """One value for each of several blocks: a single one is meant for all."""
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ValueError(f"{len(values)} values for {count} blocks: {values}")
    return values
