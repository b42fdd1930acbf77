"""Writes plain values as readable YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]  # it ships no types

MAX_LINE_LENGTH = 110


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, and writes no aliases."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's
        return True


def as_yaml(objects: Sequence[Mapping[str, Any]], heading: Sequence[str] = ()) -> str:
    """One document per object, after comment lines."""
    head = "".join(f"# {line}\n" for line in heading)
    body = yaml.dump_all(
        objects,
        Dumper=_Dumper,
        sort_keys=False,
        width=MAX_LINE_LENGTH,
        allow_unicode=True,
        explicit_start=True,
    )
    return head + body
