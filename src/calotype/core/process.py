"""Process start times, and output of helper programs."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def process_start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The program name is in parentheses and may contain any character.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


_TIMEOUT_S = 10.0


def command_output(command: Sequence[str], *, question: str = "", folder: Path | None = None) -> str | None:
    """The stdout of `command`, or None if it is missing, fails or times out.

    GIT_ variables are removed: inside a hook they would point git at the repository of the hook.
    """
    program = shutil.which(command[0]) if command else None
    if program is None:
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - callers pass fixed arguments; the program is found on PATH
            [program, *command[1:]],
            input=question,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=folder,
            env=environment | {"LC_ALL": "C"},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
