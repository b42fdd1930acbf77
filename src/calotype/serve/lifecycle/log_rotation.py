"""A log file that stays within bounds while others write to it. Knows nothing of what they write."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path

_log = logging.getLogger(__name__)

MAX_BYTES = 64 * 2**20
_LOOK_EVERY_S = 60.0


async def rotate_in_background(
    log: Path, most_bytes: int = MAX_BYTES, every_s: float = _LOOK_EVERY_S
) -> None:
    """Look at the file now and then, until this is cancelled."""
    while True:
        await asyncio.to_thread(shorten, log, most_bytes)
        await asyncio.sleep(every_s)


def shorten(log: Path, most_bytes: int = MAX_BYTES) -> None:
    """Begin the file anew if it has grown too large; what it held is kept in another beside it, once.

    Server and workers have it open, to append to, and go on with the same file: so it is emptied and not
    moved away. A line that one of them writes in that very moment may be lost.
    """
    try:
        if log.stat().st_size <= most_bytes:
            return
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
    # In the foreground there is none; and a full disk is said by those who need it.
    except FileNotFoundError:
        return
    except OSError as error:
        _log.error("%s cannot be shortened: %s", log, error)
