"""SIGKILL of a real run in the middle of saving in the background loses that checkpoint and no other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from calotype.train.checkpoint import CheckpointManager
from tests.unit.train.checkpoint.children import until_readable
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state
from tests.unit.train.checkpoint.test_manager import names_in, save

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("point", "files"),
    [
        ("in the first file", {"state.safetensors"}),
        (
            "before the manifest",
            {"state.safetensors", "state.json", "rank-00000.safetensors", "rank-00000.json"},
        ),
    ],
)
def test_only_the_unfinished_checkpoint_is_lost(folder: Path, point: str, files: set[str]) -> None:
    command = [sys.executable, "-m", "tests.unit.train.checkpoint.killed_run", str(folder), point]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        try:
            until_readable(run.stdout.fileno())
            assert run.stdout.readline() == b"here\n"
        finally:
            run.kill()
    assert run.returncode == -signal.SIGKILL
    assert names_in(folder / ".step-00000002.partial") == files

    with CheckpointManager(folder, keep_last=3) as store:
        loaded = store.load_newest()
        assert loaded is not None
        assert loaded.step == 1
        assert_same((loaded.shared, loaded.own), (small_state(1), own_state(1)))
        save(store, 2)
    assert names_in(folder) == {".lock", "step-00000001", "step-00000002"}
