"""A cache of its own for each test, and a model to build engines for."""

from pathlib import Path

import pytest

from tests.shrunk import shrunk_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shrunk model's folder."""
    return shrunk_folder(tmp_path_factory.mktemp("model"), "emoji", 0)
