"""Where a page of jobs ends, said so that the next one is found whatever becomes of its last job meanwhile.

Knows nothing of how jobs are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from calotype.spec.job import Job

# No job's id begins so.
_END = re.compile(r"~(\d{1,18})", re.ASCII)


def cursor_after(jobs: Sequence[Job]) -> str:
    """What the next page comes before."""
    return f"~{jobs[-1].sequence}"


def parse_cursor(before: str) -> int | None:
    """The last job's number, where a page's end is said; None where it is a job's id."""
    found = _END.fullmatch(before)
    return int(found[1]) if found else None
