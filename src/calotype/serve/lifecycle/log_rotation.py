"""Keeps a log file within a size limit while other processes write to it."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path

_log = logging.getLogger(__name__)

MAX_BYTES = 64 * 2**20
_CHECK_INTERVAL_S = 60.0


async def rotate_in_background(
    log: Path, most_bytes: int = MAX_BYTES, every_s: float = _CHECK_INTERVAL_S
) -> None:
    """Check the file periodically, until this is cancelled."""
    while True:
        await asyncio.to_thread(shorten, log, most_bytes)
        await asyncio.sleep(every_s)


def shorten(log: Path, most_bytes: int = MAX_BYTES) -> None:
    """Truncate the file if it has grown too large, after copying it to one backup beside it.

    Server and workers have the file open for appending and keep using it, so it is truncated, not renamed.
    A line that is written in that moment may be lost.
    """
    try:
        if log.stat().st_size <= most_bytes:
            return
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
    # A server in the foreground has no log file.
    except FileNotFoundError:
        return
    except OSError as error:
        _log.error("%s cannot be shortened: %s", log, error)
