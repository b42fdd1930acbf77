"""Saving in the background: what was there when `save` was called is what is written, and errors come out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from calotype.train.checkpoint import BackgroundSaver, CannotWriteError, CheckpointManager, NoDiskSpaceError
from calotype.train.checkpoint.flatten import flatten
from calotype.train.checkpoint.fs import NewFile
from calotype.train.checkpoint.host_copy import HostBuffers
from tests.unit.train.checkpoint.faults import refuse
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state, train_one, trained
from tests.unit.train.checkpoint.test_manager import steps_in

PATIENCE_S = 30


class Gate:
    """A barrier that lets the writer through when it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def load(store: CheckpointManager, step: int) -> tuple[object, object]:
    return store.load(store.folder / f"step-{step:08d}")


def test_changes_after_save_are_not_written(store: CheckpointManager, gate: Gate) -> None:
    network, optimizer = trained(steps=2)
    state = {"weights": network.state_dict(), "optimizer": optimizer.state_dict(), "seen": [1, 2]}
    own = {"rng": torch.get_rng_state()}
    expected = store.load(store.save(1, state, own))
    with BackgroundSaver(store, barrier=gate) as saver:
        saver.save(2, state, own)
        assert gate.reached.wait(PATIENCE_S)
        train_one(network, optimizer, step=2)
        state["seen"].append(3)  # type: ignore[attr-defined]  # the dict's values are of several types
        own["rng"].zero_()
        gate.opened.set()
    assert_same(load(store, 2), expected)
    assert not torch.equal(network.state_dict()["0.weight"], expected[0]["weights"]["0.weight"])


def test_save_returns_before_the_file_is_written(store: CheckpointManager, gate: Gate) -> None:
    with BackgroundSaver(store, barrier=gate) as saver:
        saver.save(1, small_state(1), own_state(1))
        assert store.newest() is None
        gate.opened.set()
        saver.wait()
        assert steps_in(store) == [1]


def test_a_further_save_waits_for_the_one_under_way(
    store: CheckpointManager, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BackgroundSaver(store, barrier=gate) as saver:
        saver.save(1, small_state(1), own_state(1))
        waiting = threading.Event()
        wait = saver.wait

        def noticed() -> None:
            waiting.set()
            wait()

        monkeypatch.setattr(saver, "wait", noticed)
        second = threading.Thread(target=saver.save, args=(2, small_state(2), own_state(2)))
        second.start()
        assert waiting.wait(PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        gate.opened.set()
        second.join(PATIENCE_S)
    assert_same(load(store, 1), (small_state(1), own_state(1)))
    assert_same(load(store, 2), (small_state(2), own_state(2)))


@pytest.fixture
def failing(store: CheckpointManager, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundSaver]:
    """A saver whose save of step 1 failed in the background; the disk works again."""
    saver = BackgroundSaver(store)
    with monkeypatch.context() as patch:
        patch.setattr(NewFile, "write", lambda *_: refuse())
        saver.save(1, small_state(1), own_state(1))
        assert saver._running_save is not None
        assert saver._running_save.exception(PATIENCE_S) is not None
    yield saver
    saver.close()


def test_an_error_comes_out_of_the_next_call_once(failing: BackgroundSaver, store: CheckpointManager) -> None:
    with pytest.raises(CannotWriteError, match="the disk failed"):
        failing.save(2, small_state(2), own_state(2))
    before = failing.saved_step
    failing.save(3, small_state(3), own_state(3))
    failing.wait()
    assert (before, failing.saved_step) == (None, 3)
    assert steps_in(store) == [3]


@pytest.mark.parametrize("call", [BackgroundSaver.wait, BackgroundSaver.close])
def test_an_error_comes_out_of_waiting(failing: BackgroundSaver, call: object) -> None:
    assert callable(call)
    with pytest.raises(CannotWriteError, match="the disk failed"):
        call(failing)


def test_an_error_is_logged_when_it_happens(
    failing: BackgroundSaver, warned: pytest.LogCaptureFixture, store: CheckpointManager
) -> None:
    assert failing.save_now(2, small_state(2), own_state(2)) == store.newest()
    assert "the previous checkpoint was not saved" in warned.text


def test_an_error_is_logged_with_its_trace(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, warned: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5}))
    saver = BackgroundSaver(store)
    saver.save(1, {}, {})
    with pytest.raises(NoDiskSpaceError, match="5 bytes are free"):
        saver.close()
    assert "the checkpoint of step 1 was not saved" in warned.text
    assert "NoDiskSpaceError" in warned.text


def test_leaving_with_an_error_of_the_loop_keeps_that_error(failing: BackgroundSaver) -> None:
    with pytest.raises(ZeroDivisionError), failing:
        raise ZeroDivisionError


def test_save_now_waits_and_writes_before_it_returns(store: CheckpointManager) -> None:
    with BackgroundSaver(store) as saver:
        saver.save(1, small_state(1), own_state(1), metric=0.5)
        path = saver.save_now(2, small_state(2), own_state(2), metric=0.25)
        assert store.newest() == path
        assert [(c.step, c.metric) for c in store.list()] == [(1, 0.5), (2, 0.25)]
        assert saver.saved_step == 2
    assert_same(store.load(path), (small_state(2), own_state(2)))


def test_only_the_first_rank_looks_at_the_shared_state(store: CheckpointManager) -> None:
    saver = BackgroundSaver(store, rank=1, world_size=2, barrier=lambda: None)
    saver.save(1, object(), own_state(1))
    with pytest.raises(
        CannotWriteError, match=r"rank 1 does not see \.step-00000001.partial of the first rank"
    ):
        saver.close()


def test_host_memory_is_used_again(store: CheckpointManager) -> None:
    buffers = HostBuffers()
    first = buffers.snapshot(flatten([torch.zeros(3), torch.zeros(2, 2)]))
    second = buffers.snapshot(flatten([torch.ones(3), torch.ones(4)]))
    assert first.flat.tensors["0"] is second.flat.tensors["0"]
    assert_same(second.flat.tensors, {"0": torch.ones(3), "1": torch.ones(4)})


def test_the_file_is_the_same_as_without_the_background(store: CheckpointManager, tmp_path: Path) -> None:
    network, optimizer = trained(steps=1)
    state = {"weights": network.state_dict(), "optimizer": optimizer.state_dict()}
    path = store.save(1, state, None)
    with BackgroundSaver(CheckpointManager(tmp_path / "other", keep_last=1)) as saver:
        saver.save(1, state, None)
    for name in ("state.safetensors", "state.json"):
        assert (path / name).read_bytes() == (tmp_path / "other" / path.name / name).read_bytes()
