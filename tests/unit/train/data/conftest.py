"""Caches of these tests are their own, and a download that fails is tried again without a pause."""

from pathlib import Path

import pytest

from calotype.train.data.sources import http_download


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CALOTYPE_CACHE", str(folder))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(http_download, "FIRST_PAUSE_S", 0.0)
    return folder
