"""A cache of its own for each test, and a model to build engines for."""

from pathlib import Path
from typing import Any

import pytest

from calotype.engine import presets
from calotype.engine.artifacts import build
from calotype.engine.compile.region import CompileRequest
from tests.small_models import shrunk_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def orders(monkeypatch: pytest.MonkeyPatch) -> list[CompileRequest]:
    """What was ordered from the compiler that stands in for torch's, which would take minutes."""
    given: list[CompileRequest] = []

    def written(order: CompileRequest, path: Path) -> None:
        given.append(order)
        path.write_bytes(b"machine code")

    def read(path: Path) -> Any:
        raise RuntimeError(f"{path.name} is no machine code")

    monkeypatch.setattr(build, "write_package", written)
    for module in (build, presets):
        monkeypatch.setattr(module, "read_package", read)
    return given


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shrunk model's folder."""
    return shrunk_folder(tmp_path_factory.mktemp("model"), "emoji", 0)
