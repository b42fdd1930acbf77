"""A state directory of its own for every test, and no deployment left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calotype.serve.lifecycle.daemon import stop
from calotype.serve.lifecycle.registry import all_deployment_dirs


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    yield tmp_path / "state"
    for place in all_deployment_dirs():
        running = place.running()
        if running is not None:
            stop(running, at_once=True)
