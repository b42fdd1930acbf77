"""Saving, finding and loading checkpoints, and which of them stay."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calotype.core.errors import NotFoundError, RequestError
from calotype.train.checkpoint import CheckpointManager
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state

FILES = {"state.safetensors", "state.json", "rank-00000.safetensors", "rank-00000.json"}


def save(store: CheckpointManager, *steps: int, metric: float | None = None) -> None:
    for step in steps:
        store.save(step, small_state(step), own_state(step), metric=metric)


def steps_in(store: CheckpointManager) -> list[int]:
    return [checkpoint.step for checkpoint in store.list()]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_was_saved_comes_back(store: CheckpointManager) -> None:
    path = store.save(100, small_state(1), own_state(1))
    assert path.name == "step-00000100"
    assert store.newest() == path
    shared, own = store.load(path)
    assert_same(shared, small_state(1))
    assert_same(own, own_state(1))
    loaded = store.load_newest()
    assert loaded is not None
    assert (loaded.path, loaded.step, loaded.world_size) == (path, 100, 1)
    assert_same((loaded.shared, loaded.own), (small_state(1), own_state(1)))


def test_an_empty_state_and_no_state_are_states(store: CheckpointManager) -> None:
    assert store.load(store.save(1, {}, None)) == ({}, None)


def test_a_folder_that_is_not_there_has_no_checkpoints(store: CheckpointManager) -> None:
    assert store.newest() is None
    assert store.load_newest() is None
    assert store.list() == ()
    assert not store.folder.exists()


def test_a_checkpoint_is_files_that_other_tools_read(store: CheckpointManager) -> None:
    path = store.save(7, small_state(7), own_state(7), metric=0.25)
    assert names_in(path) == FILES | {"complete.json"}
    assert torch.equal(load_file(path / "state.safetensors")["weights.a"], small_state(7)["weights"]["a"])
    manifest = json.loads((path / "complete.json").read_text())
    assert (manifest["step"], manifest["world_size"], manifest["metric"]) == (7, 1, 0.25)
    assert manifest["versions"]["torch"] == torch.__version__.split("+")[0] or manifest["versions"]["torch"]
    assert manifest["saved_at"].endswith("+00:00")
    for name in FILES:
        content = (path / name).read_bytes()
        noted = {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert manifest["files"][name] == noted


def test_reading_needs_no_claim(store: CheckpointManager) -> None:
    save(store, 1)
    reader = CheckpointManager(store.folder, keep_last=1)
    assert_same(reader.load(store.folder / "step-00000001")[0], small_state(1))


def test_the_last_few_stay(store: CheckpointManager) -> None:
    save(store, 1, 2, 3, 4, 5)
    assert steps_in(store) == [3, 4, 5]
    assert names_in(store.folder) == {".lock", "step-00000003", "step-00000004", "step-00000005"}


def test_the_best_stays_beside_the_last(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=2, keep_best=True) as store:
        for step, metric in enumerate([0.9, 0.2, 0.5, float("nan"), None, 0.3], start=1):
            save(store, step, metric=metric)
        assert steps_in(store) == [2, 5, 6]
        save(store, 7, metric=0.1)
        assert steps_in(store) == [6, 7]


def test_of_equals_the_last_is_the_best(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=1, keep_best=True) as store:
        for step, metric in enumerate([0.5, 0.5, 0.6], start=1):
            save(store, step, metric=metric)
        assert steps_in(store) == [2, 3]


def test_a_metric_that_is_no_number_is_never_the_best(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=1, keep_best=True) as store:
        for metric in (float("nan"), float("-inf"), 1.0):
            save(store, 2 if metric == 1.0 else 1, metric=metric)
            assert [c.metric for c in store.list()] == [1.0 if metric == 1.0 else None]
        save(store, 3)
        assert steps_in(store) == [2, 3]


def test_without_asking_the_best_goes_like_any_other(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=1) as store:
        save(store, 1, metric=0.1)
        save(store, 2, metric=0.9)
        assert steps_in(store) == [2]


def test_the_same_step_again_takes_the_place_of_the_first(store: CheckpointManager) -> None:
    save(store, 1)
    path = store.save(1, small_state(9), own_state(9))
    assert_same(store.load(path)[0], small_state(9))
    assert names_in(store.folder) == {".lock", "step-00000001"}


def test_after_going_back_the_newest_is_the_one_saved_last(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=2) as store:
        save(store, 10, 20)
        path = store.save(15, small_state(15), own_state(15))
        assert store.newest() == path
        assert steps_in(store) == [20, 15]


def test_a_clock_that_goes_back_changes_nothing(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 30)
    monkeypatch.setattr("time.time_ns", lambda: 1)
    save(store, 10, 20)
    assert steps_in(store) == [30, 10, 20]


def test_folders_that_are_not_ours_are_left_alone(store: CheckpointManager) -> None:
    for name in ("step-1", "notes", "step-00000001x", ".step-00000001", "step-00000002"):
        (store.folder / name).mkdir(parents=True)
    save(store, 3, 4, 5, 6)
    assert steps_in(store) == [4, 5, 6]
    assert {"step-1", "notes", "step-00000001x", ".step-00000001", "step-00000002"} < names_in(store.folder)


def test_a_checkpoint_that_cannot_be_removed_is_said_and_not_fatal(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, warned: pytest.LogCaptureFixture
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("calotype.train.checkpoint.fs.remove_folder", refuse)
    save(store, 1, 2, 3, 4)
    assert store.newest() == store.folder / "step-00000004"
    assert "step-00000001 is no longer needed and could not be removed" in warned.text


def test_a_rank_the_saving_run_did_not_have_is_told_so(
    store: CheckpointManager, warned: pytest.LogCaptureFixture
) -> None:
    path = store.save(1, small_state(1), own_state(1))
    shared, own = store.load(path, rank=3)
    assert_same(shared, small_state(1))
    assert own is None
    assert "was saved by 1 ranks and has no state for rank 3" in warned.text


def test_loading_what_is_not_there_is_an_error_with_its_name(store: CheckpointManager) -> None:
    with pytest.raises(NotFoundError, match="step-00000005 is not there"):
        store.load(store.folder / "step-00000005")


def test_keeping_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(RequestError, match="keep_last: 0 would keep nothing"):
        CheckpointManager(folder, keep_last=0)


@pytest.mark.parametrize(("step", "rank", "world_size"), [(-1, 0, 1), (1, 1, 1), (1, -1, 1), (1, 0, 2)])
def test_calls_that_cannot_be_meant_are_mistakes(
    store: CheckpointManager, step: int, rank: int, world_size: int
) -> None:
    with pytest.raises(ValueError, match=r"is impossible|need a barrier"):
        store.save(step, {}, {}, rank=rank, world_size=world_size)
    assert not store.folder.exists()
