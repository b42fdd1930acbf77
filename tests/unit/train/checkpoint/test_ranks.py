"""Two real processes over gloo save one checkpoint, and runs of other sizes read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.multiprocessing.spawn import spawn

from calotype.train.checkpoint import CheckpointManager
from tests.unit.train.checkpoint import rank_work
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state
from tests.unit.train.checkpoint.test_manager import FILES, names_in

PATIENCE_S = 120


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which both ranks went through all their works without an error."""
    folder = tmp_path_factory.mktemp("ranks")
    context = spawn(rank_work.main, args=(folder,), nprocs=rank_work.WORLD_SIZE, join=False)
    assert context is not None
    try:
        # Each call returns when one more rank has ended, and raises what a rank raised.
        assert any(context.join(PATIENCE_S) for _ in range(rank_work.WORLD_SIZE)), "the ranks hang"
    finally:
        for process in context.processes:
            process.kill()
    return folder


def test_both_ranks_found_everything_right(done: Path) -> None:
    assert (done / "each_gets_its_own_back" / "step-00000001").is_dir()


def test_each_rank_has_files_of_its_own(done: Path) -> None:
    path = done / "each_gets_its_own_back" / "step-00000001"
    assert names_in(path) == FILES | {"rank-00001.safetensors", "rank-00001.json", "complete.json"}


def test_fewer_ranks_get_theirs(done: Path) -> None:
    store = CheckpointManager(done / "each_gets_its_own_back", keep_last=1)
    loaded = store.load_newest(rank=0)
    assert loaded is not None
    assert loaded.world_size == 2
    assert_same((loaded.shared, loaded.own), (small_state(1), own_state(1, 0)))


def test_more_ranks_get_the_shared_state_and_are_told(done: Path, warned: pytest.LogCaptureFixture) -> None:
    store = CheckpointManager(done / "each_gets_its_own_back", keep_last=1)
    loaded = store.load_newest(rank=2)
    assert loaded is not None
    assert_same(loaded.shared, small_state(1))
    assert loaded.own is None
    assert "was saved by 2 ranks and has no state for rank 2, which starts with a new one" in warned.text
