"""One Slurm for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.slurm import Cluster, running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("slurm")) as started:
        yield started
