"""What the real Triton does with kernels that another process has kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calotype.engine.store.artefact import engines_dir
from tests.unit.store.kept import SMALL, target, verdicts

ROOT = Path(__file__).parents[3]


def kernels_found(what: str, triton: Path) -> list[bool]:
    """In a process of its own, for which `triton` is the user's choice of a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.store.compiling", what],
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(triton)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[bool] = json.loads(done.stdout)
    return found


def test_a_fresh_process_compiles_nothing_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernels_found("build", tmp_path / "builder") == [False, False]
    # The user's own cache is not what an engine is built from or into.
    assert not (tmp_path / "builder").exists()
    kept = engines_dir() / target(SMALL).key
    lists = list(kept.rglob("__grp__*.json"))
    assert len(lists) == 2
    assert not any(str(tmp_path) in listing.read_text() for listing in lists)

    # The engine works wherever it lies.
    kept.parents[1].rename(tmp_path / "elsewhere")
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "elsewhere"))
    assert kernels_found("start", tmp_path / "with") == [True, True]
    assert [one.state for one in verdicts()] == ["ok"]
