"""Waiting for what another process or thread will do. Knows nothing of what that is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""For ever would hide a hang."""


def until(
    condition: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S, pause_s: float = 0.02
) -> None:
    """Look again and again until it is so; fails with what was waited for."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {patience_s:g} s"
        time.sleep(pause_s)
