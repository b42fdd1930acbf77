"""A command in a process group of its own, with a limit on its time. Knows nothing of what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from calotype.train.checkpoint import StopSignal

_LOOKS_EVERY_S = 0.2
_GRACE_S = 10
_ENDS_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Has Linux kill this process when the one that started it dies, however it does, and becomes the command."""
_PYTHON = sys.executable


def run_child(
    command: Sequence[str],
    log: Path,
    *,
    limit_s: float | None,
    stop: StopSignal,
    got_on: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run it with all it says in `log`; None if it ended well, else why not.

    The keyboard and schedulers speak to us alone: the group is ended with all that it started, when `stop`
    says so or the time is over. The limit begins anew whenever `got_on`, asked all the time, says so. Where
    nobody is left to end it, it ends by itself: the next one would find its device in use.
    """
    if sys.platform == "linux":
        command = [_PYTHON, "-IS", "-c", _ENDS_WITH_US, str(os.getpid()), *command]
    started = time.monotonic()
    with (
        log.open("wb") as out,
        subprocess.Popen(  # noqa: S603 - our own command line
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        ) as child,
    ):
        try:
            while not _ended(child, _LOOKS_EVERY_S):
                if stop.requested:
                    return f"stopped by {stop.reason}"
                if got_on():
                    started = time.monotonic()
                if limit_s is not None and time.monotonic() - started > limit_s:
                    return f"ran past the limit of {limit_s:g} s for a row"
        finally:
            _end(child)
    if child.returncode == 0:
        return None
    return f"ended with code {child.returncode}: {_last_line(log)}"


def _ended(child: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """Until nobody of the group is left: the next one may need the device that they hold."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + _GRACE_S
        alive = _tell(child, number)
        while alive and time.monotonic() < until:
            child.poll()
            time.sleep(_LOOKS_EVERY_S / 4)
            alive = _tell(child, 0)


def _tell(child: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the whole group; whether there was anybody."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    return True


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
