"""A folder for checkpoints, a store in it that is let go of at the end, and what is logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calotype.train.checkpoint import CheckpointManager


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing matters in a power cut alone; that it is done, and when, is a test of its own (test_crash)."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def store(folder: Path) -> Iterator[CheckpointManager]:
    with CheckpointManager(folder, keep_last=3) as made:
        yield made


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("WARNING", "calotype.train.checkpoint")
    return caplog
