"""Renames a module path by its longest prefix in a table."""

from collections.abc import Mapping


def rename_prefixes(name: str, modules: Mapping[str, str]) -> str | None:
    """`name` with its longest known prefix replaced, or None if no prefix is prefix."""
    prefix, rest = name, ""
    while prefix not in modules:
        prefix, dot, last = prefix.rpartition(".")
        if not dot:
            return None
        rest = f".{last}{rest}"
    return modules[prefix] + rest
