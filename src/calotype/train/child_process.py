"""Run a command in its own process group, with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from calotype.train.checkpoint import StopSignal

_POLL_S = 0.2
_GRACE_S = 10
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Makes Linux kill this process when its parent dies, in whatever way, and then executes the command."""
_PYTHON = sys.executable


def run_child(
    command: Sequence[str],
    log: Path,
    *,
    limit_s: float | None,
    stop: StopSignal,
    got_on: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run the command with its output in `log`; returns None on success, else the reason of the failure.

    The command does not get the signals of the terminal or scheduler: its whole process group is ended when
    `stop` is requested or the time is over. The limit restarts whenever the polled `got_on` returns true. If
    this process dies, the command ends too: otherwise the next one would find its device in use.
    """
    if sys.platform == "linux":
        command = [_PYTHON, "-IS", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
    started = time.monotonic()
    with (
        log.open("wb") as out,
        subprocess.Popen(  # noqa: S603 - our own command line
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        ) as child,
    ):
        try:
            while not _ended(child, _POLL_S):
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
    """Wait until the whole group has ended: the next command may need the device that its processes hold."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_S
        alive = _signal_group(child, number)
        while alive and time.monotonic() < deadline:
            child.poll()
            time.sleep(_POLL_S / 4)
            alive = _signal_group(child, 0)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the whole group; returns whether it still had processes."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    return True


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote no output")
