"""A sweep in parts that run side by side, each in a folder of its own under the sweep's. Runs nothing."""

from __future__ import annotations

import re
from pathlib import Path

from calotype.core.errors import Problem, RequestError
from calotype.spec.records.measurement import FILE

_NAME = "part-{:05d}"


def parse_part(text: str) -> tuple[int, int]:
    """`I/N`: every Nth point from the Ith, which is counted from 0."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not found or int(found[1]) >= int(found[2]):
        rule = f"{text!r} is no part; write I/N with I from 0 to N − 1, for instance 0/4"
        raise RequestError([Problem("--part", rule, text)])
    return int(found[1]), int(found[2])


def folder_of(out: Path, part: int) -> Path:
    return out / _NAME.format(part)


def record_files(out: Path) -> list[Path]:
    """The records of a sweep's parts, then those of the sweep itself."""
    return [*sorted(out.glob(f"part-*/{FILE}")), out / FILE]
