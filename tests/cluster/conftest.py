"""One Slurm for all tests, with what programs started by it need to find."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import calotype
from tests.cluster.slurm import Cluster, running

_SOURCE, _HELD = Path(calotype.__file__).parents[1], Path(__file__).parent / "held"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder) as started, pytest.MonkeyPatch.context() as patched:
        for name, value in started.environment.items():
            patched.setenv(name, value)
        # Jobs inherit these from whoever hands them in.
        patched.setenv("PYTHONPATH", f"{_HELD}{os.pathsep}{_SOURCE}")
        patched.setenv("OMP_NUM_THREADS", "1")
        patched.setenv("HF_HUB_OFFLINE", "1")
        patched.setenv("CALOTYPE_STATE", str(folder / "calotype"))
        yield started
