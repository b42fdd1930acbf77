"""Which process is which, for as long as a machine runs. Starts and ends none."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def process_start_time(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The program's name stands in brackets and may hold anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


_TIMEOUT_S = 10.0


def command_output(command: Sequence[str], *, question: str = "", folder: Path | None = None) -> str | None:
    """What `command` prints, or None when it is not there, fails, or takes too long.

    Git's variables are taken away: inside a hook they would point every git command at the hook's repository.
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
