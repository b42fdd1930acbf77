"""Pairs of our engine and diffusers' pipeline, each made once."""

import pytest

from tests.integration.pipelines import Pair, make_pair
from tests.small_models import shrunk


@pytest.fixture(scope="session")
def sd15(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(shrunk("sd15"), tmp_path_factory.mktemp("sd15") / "model")


@pytest.fixture(scope="session")
def sd2(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(shrunk("sd2-base"), tmp_path_factory.mktemp("sd2") / "model")


@pytest.fixture(scope="session")
def sdxl(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(shrunk("sdxl"), tmp_path_factory.mktemp("sdxl") / "model")
