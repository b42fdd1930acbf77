"""Conversions of these tests go to a cache of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def conversions(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CALOTYPE_CACHE", str(folder))
    return folder
