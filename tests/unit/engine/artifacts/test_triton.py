"""What the real Triton does with kernels that another process has kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calotype.engine.artifacts.store import engines_dir
from tests.unit.engine.artifacts.stored_artifacts import SMALL, target, verdicts


def in_a_process(work: str) -> Any:
    """Which kernels a new process found compiled. Not forked: earlier tests have left threads and locks."""
    program = (
        f"import json; from tests.unit.engine.artifacts.compiling import {work}; print(json.dumps({work}()))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=300, check=True)
    return json.loads(done.stdout)


def test_another_process_compiles_nothing_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "builder"))
    assert in_a_process("build") == [False, False]
    # The user's own cache is not what an engine is built from or into.
    assert not (tmp_path / "builder").exists()
    kept = engines_dir() / target(SMALL).key
    lists = list(kept.rglob("__grp__*.json"))
    assert len(lists) == 2
    assert not any(str(tmp_path) in listing.read_text() for listing in lists)

    # The engine works wherever it lies.
    kept.parents[1].rename(tmp_path / "elsewhere")
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "user"))
    assert in_a_process("start") == [True, True]
    assert [one.state for one in verdicts()] == ["ok"]
