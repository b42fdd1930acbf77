"""Shrunk models on disk, written once for all tests here, and a cache that is nobody else's."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.small_models import shrunk_folder

FolderOf = Callable[[str], Path]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """The models are too small for a second thread to help."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Converted pickles and remembered hashes go to the test's own folder."""
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CALOTYPE_MODELS", str(tmp_path / "models"))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> FolderOf:
    """The diffusers folder of a shrunk model with seed 0. Nobody writes to it."""

    @cache
    def make(name: str) -> Path:
        return shrunk_folder(tmp_path_factory.mktemp("shrunk"), name)

    return make
