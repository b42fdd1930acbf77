"""One engine for all tests that leave it as they found it. Building one takes a second."""

import pytest

from calotype.engine.engine import Engine
from tests.engines import small_engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    return small_engine("emoji")


@pytest.fixture(scope="session")
def sdxl() -> Engine:
    return small_engine("sdxl")
