"""Cursors for pages of jobs that stay valid when the last job of a page is deleted."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calotype.spec.job import Job

# No job id begins with a tilde.
_END = re.compile(r"~(\d{1,18})", re.ASCII)


def cursor_after(jobs: Sequence[Job]) -> str:
    """The cursor of the page after these jobs."""
    return f"~{jobs[-1].sequence}"


def parse_cursor(before: str) -> int | None:
    """The sequence number in a cursor; None if `before` is a job's id."""
    match = _END.fullmatch(before)
    return int(match[1]) if match else None
