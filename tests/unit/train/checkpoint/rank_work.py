"""What each of two real ranks does in the tests; every function returns or raises on both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from calotype.core.errors import NotFoundError
from calotype.train.checkpoint import (
    BackgroundSaver,
    CannotWriteError,
    CheckpointManager,
    Ranks,
    agreed,
    separate_ranks,
)
from calotype.train.checkpoint.fs import NewFile
from tests.unit.train.checkpoint.faults import refuse
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state

WORLD_SIZE = 2


def main(rank: int, folder: Path) -> None:
    """Join, then go through the works in the same order on both ranks."""
    logging.disable(logging.CRITICAL)  # the errors below are wanted
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=WORLD_SIZE,
        timeout=timedelta(seconds=60),
    )
    ranks = separate_ranks()
    for work in WORKS:
        work(ranks, folder / work.__name__)
    dist.destroy_process_group()


def each_gets_its_own_back(ranks: Ranks, folder: Path) -> None:
    with CheckpointManager(folder, keep_last=3) as store:
        store.save(1, small_state(1), own_state(1, ranks.rank), **_place(ranks))
        shared, own = store.load(folder / "step-00000001", ranks.rank)
        assert_same(shared, small_state(1))
        assert_same(own, own_state(1, ranks.rank))


def in_the_background_beside_training(ranks: Ranks, folder: Path) -> None:
    with CheckpointManager(folder, keep_last=2) as store:
        with BackgroundSaver(store, **_place(ranks)) as saver:
            for step in range(1, 5):
                saver.save(step, small_state(step), own_state(step, ranks.rank))
                # Training's own group is busy meanwhile.
                total = torch.ones(1)
                dist.all_reduce(total)
                assert total.item() == WORLD_SIZE
        ranks.barrier()
        loaded = store.load_newest(ranks.rank, ranks.lowest)
        assert loaded is not None
        assert loaded.step == 4
        assert_same(loaded.own, own_state(4, ranks.rank))
        assert [checkpoint.step for checkpoint in store.list()] == [3, 4]


def one_that_fails_fails_all(ranks: Ranks, folder: Path) -> None:
    for failing in range(WORLD_SIZE):
        with CheckpointManager(folder, keep_last=3) as store:
            store.save(1, small_state(1), own_state(1, ranks.rank), **_place(ranks))
            with pytest.MonkeyPatch.context() as patch:
                if ranks.rank == failing:
                    patch.setattr(NewFile, "write", lambda *_: refuse())
                reason = "the disk failed" if ranks.rank == failing else "rank"
                with pytest.raises(CannotWriteError, match=reason):
                    store.save(2, small_state(2), own_state(2, ranks.rank), **_place(ranks))
            ranks.barrier()
            assert [checkpoint.step for checkpoint in store.list()] == [1]


def a_refused_folder_fails_all(ranks: Ranks, folder: Path) -> None:
    holder = CheckpointManager(folder, keep_last=1)
    if ranks.rank == 0:
        holder.claim()
    reason = "still running" if ranks.rank == 0 else "does not see"
    with pytest.raises(Exception, match=reason):
        CheckpointManager(folder, keep_last=1).save(1, {}, {}, **_place(ranks))
    holder.close()


def damage_that_one_sees_is_passed_over_by_all(ranks: Ranks, folder: Path) -> None:
    with CheckpointManager(folder, keep_last=3) as store:
        for step in (1, 2, 3):
            store.save(step, small_state(step), own_state(step, ranks.rank), **_place(ranks))
        # The other rank looks at the last one before it takes it for saved.
        ranks.barrier()
        if ranks.rank == 0:
            _flip_last_byte(folder / "step-00000003" / "rank-00001.safetensors")
            _flip_last_byte(folder / "step-00000002" / "rank-00000.safetensors")
        ranks.barrier()
        loaded = store.load_newest(ranks.rank, ranks.lowest)
        assert loaded is not None
        assert loaded.step == 1
        assert_same(loaded.own, own_state(1, ranks.rank))


def a_folder_that_only_one_sees_is_an_error(ranks: Ranks, folder: Path) -> None:
    mine = folder / str(ranks.rank)
    if ranks.rank == 0:
        CheckpointManager(mine, keep_last=1).save(1, {}, {})
    with pytest.raises(NotFoundError, match=r"some ranks can read checkpoints in .* and others none"):
        CheckpointManager(mine, keep_last=1).load_newest(ranks.rank, ranks.lowest)


def none_yet_is_none_for_all(ranks: Ranks, folder: Path) -> None:
    assert CheckpointManager(folder, keep_last=1).load_newest(ranks.rank, ranks.lowest) is None


def one_signal_stops_all(ranks: Ranks, folder: Path) -> None:
    assert agreed(ranks.rank == 1)
    assert not agreed(False)
    assert agreed(ranks.rank == 0, "cpu", ranks.group)


WORKS: list[Callable[[Ranks, Path], None]] = [
    each_gets_its_own_back,
    in_the_background_beside_training,
    one_that_fails_fails_all,
    a_refused_folder_fails_all,
    damage_that_one_sees_is_passed_over_by_all,
    a_folder_that_only_one_sees_is_an_error,
    none_yet_is_none_for_all,
    one_signal_stops_all,
]


def _place(ranks: Ranks) -> dict[str, Any]:
    return {"rank": ranks.rank, "world_size": ranks.world_size, "barrier": ranks.barrier}


def _flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
