"""A process that loses its peers says so in words, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from calotype.core.errors import ExitCode
from calotype.train.distributed.failure import RanksLostError, peers_stopped
from calotype.train.distributed.process_group import init_process_group
from tests.unit.train.runs import small_recipe

CLOSED = "[/somewhere/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:1234"


@pytest.mark.parametrize("error", [RuntimeError(CLOSED), dist.DistNetworkError("no answer")])
def test_a_failed_exchange_is_told_with_what_happens_next(
    base: Path, tmp_path: Path, error: RuntimeError
) -> None:
    # A group of one: nobody has to be started for it.
    recipe = small_recipe(base, tmp_path, trainer__strategy="ddp", trainer__peer_timeout_s=7)
    with pytest.raises(RanksLostError) as told, init_process_group(recipe, torch.device("cpu")):
        raise error
    assert "rank 0 of 1" in str(told.value)
    assert "trainer.peer_timeout_s=7 s" in str(told.value)
    assert "somewhere" not in str(told.value)
    assert "--max-restarts" in str(told.value)
    assert told.value.exit_code == ExitCode.PEERS_LOST
    assert told.value.__cause__ is error


def test_errors_of_its_own_stay_what_they_are(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, trainer__strategy="ddp")
    with pytest.raises(RuntimeError, match="shapes"), init_process_group(recipe, torch.device("cpu")):
        raise RuntimeError("shapes do not match")


def test_being_stopped_by_another_is_no_success() -> None:
    assert peers_stopped(12, 1, 4).exit_code == ExitCode.PEERS_LOST
    assert "step 12, which is saved" in str(peers_stopped(12, 1, 4))
