"""Looking up a module by the longest prefix of a name that a table knows. Knows nothing of any naming."""

from collections.abc import Mapping


def rename_prefixes(name: str, modules: Mapping[str, str]) -> str | None:
    """`name` with its longest known leading part replaced, or None when no part of it is known."""
    known, rest = name, ""
    while known not in modules:
        known, dot, last = known.rpartition(".")
        if not dot:
            return None
        rest = f".{last}{rest}"
    return modules[known] + rest
