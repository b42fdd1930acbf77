"""`calotype train` in processes of its own, alone or as two ranks. Knows nothing of any test.

They are warm (tests/warm_python.py) unless a test asks for cold ones: importing takes longer than they train.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.warm_python import IMPORTED_FROM, warm_python

LONGEST_S = 300
_QUIET = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}


def run_on_two_ranks(
    lines: Sequence[Sequence[str]],
    folder: Path,
    program: str = "calotype",
    num_restarts: int = 0,
) -> None:
    """Run command lines of a program one after the other on two ranks; all have to end well."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    for line in lines:
        # One torchrun each: a second group in the same processes would meet the first one's stale addresses.
        ended = subprocess.run(
            [warm_python(), *launcher, f"--max-restarts={num_restarts}", "-m", program, *line],
            cwd=folder,
            env=surroundings(),
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4000:]


def run_alone(
    program: str,
    words: Sequence[str],
    folder: Path,
    *,
    python: str | None = None,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one command line of a program in a process of its own, which ends within a limit.

    The answer comes only when all that holds its output has ended too. `more` are variables.
    """
    return subprocess.run(
        [python or warm_python(), "-m", program, *words],
        cwd=folder,
        env={**surroundings(), **(more or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def surroundings() -> dict[str, str]:
    """The environment of a child: one thread, and no network but the machine's own."""
    return {**os.environ, **_QUIET, "PYTHONPATH": os.pathsep.join(map(str, IMPORTED_FROM))}
