"""Asks a program beside this file about cases, in a process of its own: Triton's ways last for a process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[4]
_MOST_SECONDS = 600.0


def ask(program: str, cases: list[dict[str, Any]], **environment: str) -> list[Any]:
    """What `program` finds for each case."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.unit.engine.kernels.{program}"],
        input=json.dumps(cases),
        env={**os.environ, **environment},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[Any] = json.loads(done.stdout)
    assert len(found) == len(cases)
    return found


def interpret(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How far the kernels are from torch in fp64, by `interpreted.py`."""
    return ask("interpreted", cases, TRITON_INTERPRET="1")
