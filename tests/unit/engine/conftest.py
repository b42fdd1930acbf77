"""One engine for all tests that leave it as they found it. Building one takes a second."""

import pytest
import torch

from calotype.engine.engine import Engine
from tests.engines import small_engine


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Small models gain nothing from threads, and sums come out the same on every machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def engine() -> Engine:
    return small_engine("emoji")


@pytest.fixture(scope="session")
def sdxl() -> Engine:
    return small_engine("sdxl")
