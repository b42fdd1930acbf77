"""Splits a sweep into parts that run in parallel, each in its own subfolder."""

from __future__ import annotations

import re
from pathlib import Path

from calotype.core.errors import Problem, RequestError
from calotype.spec.records.measurement import FILE

_NAME = "part-{:05d}"


def parse_part(text: str) -> tuple[int, int]:
    """Parse `I/N`: every Nth point from point I, counted from 0."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not match or int(match[1]) >= int(match[2]):
        rule = f"{text!r} is not a part; write I/N with I from 0 to N − 1, for instance 0/4"
        raise RequestError([Problem("--part", rule, text)])
    return int(match[1]), int(match[2])


def folder_of(out: Path, part: int) -> Path:
    return out / _NAME.format(part)


def record_files(out: Path) -> list[Path]:
    """Return the record files of a sweep's parts, then that of the sweep itself."""
    return [*sorted(out.glob(f"part-*/{FILE}")), out / FILE]
