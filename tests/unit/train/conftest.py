"""The shallow models that training starts from, written once for all tests."""

from pathlib import Path

import pytest

from tests.small_models import shallow_folder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the smallest model."""
    return shallow_folder(tmp_path_factory.mktemp("base"), "emoji", 0)


@pytest.fixture(scope="session")
def sdxl_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model with two text encoders."""
    return shallow_folder(tmp_path_factory.mktemp("base"), "sdxl", 0)
