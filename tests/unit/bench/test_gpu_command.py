"""benchmarks/engine.sh, with an interpreter that only notes what it is asked to run."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STUB = """#!/bin/sh
echo "$@" >> "{noted}"
case "$*" in *{failing}*) exit 1 ;; esac
"""


@pytest.mark.parametrize(("failing", "code"), [("nothing", 0), ("tests.gpu.engine", 1)])
def test_one_command_runs_all_and_goes_on_where_one_fails(tmp_path: Path, failing: str, code: int) -> None:
    noted, python, out = tmp_path / "noted", tmp_path / "python", tmp_path / "out"
    python.write_text(STUB.format(noted=noted, failing=failing))
    python.chmod(0o755)
    told = {**os.environ, "PYTHON": str(python)}
    ran = subprocess.run(
        [ROOT / "benchmarks/engine.sh", "out"],
        env=told,
        cwd=tmp_path,
        timeout=60,
        capture_output=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    asked = [line.split() for line in noted.read_text().splitlines() if "zipfile" not in line]
    for kind, name, *_ in asked:
        assert find_spec(name) if kind == "-m" else (ROOT / kind).is_file()
    assert [words[-1].removeprefix(f"{out}") for words in asked] == [
        "/kernels.json",
        "/engine-checks.json",
        "/start.json",
        "/memory",
        "",
        "/by-pass",
        "/compiled-blocks",
    ]
