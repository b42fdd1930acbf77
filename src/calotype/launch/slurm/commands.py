"""Runs Slurm's programs. Knows nothing of what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from calotype.launch.backend import LaunchError

_TIMEOUT_S = 60.0
_WHOLE_ANSWERS = {"SLURM_BITSTR_LEN": "0"}
"""Left alone, they cut off long lists of an array's tasks."""


class SlurmRefusedError(LaunchError):
    """What one of the programs said when it refused."""

    def __init__(self, program: str, said: str) -> None:
        self.said = said
        super().__init__(f"{program} refused: {said}")


def run_slurm(*command: str, folder: Path | None = None) -> str:
    """What a program printed; raises with its own words when it refuses."""
    program = shutil.which(command[0])
    if program is None:
        raise LaunchError(
            f"{command[0]} is not on this machine; run this where Slurm is, or use --launch local"
        )
    try:
        done = subprocess.run(  # noqa: S603 - words are checked by the spec, and no shell reads them
            [program, *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            cwd=folder,
            env={**os.environ, **_WHOLE_ANSWERS},
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{command[0]} said nothing for {_TIMEOUT_S:.0f} s; is slurmctld up?") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise SlurmRefusedError(command[0], words[-1] if words else f"ended with code {done.returncode}")
    return done.stdout
