"""The short form of `python -m tests.faults --kills 50`."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.faults.storm import MARK, VICTIMS, Storm


def test_every_accepted_request_ends_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, uuid4().hex)
    died = Storm(tmp_path, seed=7).run(kills=6)
    assert all(died[victim] for victim in VICTIMS)
