"""Runs Slurm's programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from calotype.launch.backend import LaunchError

_TIMEOUT_S = 60.0
_NO_TRUNCATION = {"SLURM_BITSTR_LEN": "0"}
"""By default they truncate long lists of an array's tasks."""


class SlurmRefusedError(LaunchError):
    """A Slurm program refused; `said` is its message."""

    def __init__(self, program: str, said: str) -> None:
        self.said = said
        super().__init__(f"{program} refused: {said}")


def run_slurm(*command: str, folder: Path | None = None) -> str:
    """Run a program and return its output; raises with its message if it fails."""
    program = shutil.which(command[0])
    if program is None:
        raise LaunchError(
            f"{command[0]} is not on this machine; run this on a Slurm login node, or use --launch local"
        )
    try:
        completed = subprocess.run(  # noqa: S603 - words are checked by the spec, and no shell reads them
            [program, *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            cwd=folder,
            env={**os.environ, **_NO_TRUNCATION},
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{command[0]} did not answer within {_TIMEOUT_S:.0f} s; is slurmctld up?"
        ) from None
    if completed.returncode:
        message_lines = (completed.stderr or completed.stdout).strip().splitlines()
        raise SlurmRefusedError(
            command[0], message_lines[-1] if message_lines else f"exited with code {completed.returncode}"
        )
    return completed.stdout
