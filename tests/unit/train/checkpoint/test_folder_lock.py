"""One run writes into a folder at a time, for as long as it lives and no longer."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from calotype.train.checkpoint import CheckpointManager, FolderInUseError
from tests.unit.train.checkpoint.children import forever, fork, kill, living, outcome, read_in_time
from tests.unit.train.checkpoint.states import small_state
from tests.unit.train.checkpoint.test_manager import names_in, save, steps_in

Tell = Callable[[], None]


def hold(folder: Path) -> Callable[[Tell], None]:
    """Work for a child: take the folder, begin a checkpoint, say so and stay."""

    def work(tell: Tell) -> None:
        def stay() -> None:
            tell()
            forever()

        CheckpointManager(folder, keep_last=1).save(7, small_state(7), None, barrier=stay)

    return work


def test_the_second_is_refused_with_the_pid_of_the_first(store: CheckpointManager) -> None:
    with living(hold(store.folder)) as child:
        assert child.hear() == b"."
        with pytest.raises(FolderInUseError, match=rf"process {child.pid} on .* still running; stop it or"):
            store.claim()
        with pytest.raises(FolderInUseError, match=str(child.pid)):
            # The same step as the other is at: its unfinished folder must not be touched.
            store.save(7, {}, {})
        assert ".step-00000007.partial" in names_in(store.folder)
        kill(child.pid)
        store.claim()
        assert names_in(store.folder) == {".lock"}


def test_reading_goes_on_beside_the_writer(store: CheckpointManager) -> None:
    save(store, 1)
    store.close()
    with living(hold(store.folder)) as child:
        child.hear()
        loaded = store.load_newest()
        assert loaded is not None
        assert loaded.step == 1


def test_a_second_store_of_the_same_process_is_refused_too(store: CheckpointManager, folder: Path) -> None:
    store.claim()
    other = CheckpointManager(folder, keep_last=1)
    with pytest.raises(FolderInUseError, match=str(os.getpid())):
        other.claim()
    store.close()
    other.claim()
    other.close()


def test_a_worker_that_outlives_its_run_does_not_keep_the_folder(store: CheckpointManager) -> None:
    reading, writing = os.pipe()

    def run_with_worker() -> None:
        mine = CheckpointManager(store.folder, keep_last=1)
        mine.claim()
        fork(work)
        forever()

    def work() -> None:
        os.write(writing, os.getpid().to_bytes(4, "little"))
        forever()

    run = fork(run_with_worker)
    worker = int.from_bytes(read_in_time(reading, 4), "little")
    try:
        with pytest.raises(FolderInUseError):
            store.claim()
        kill(run)
        store.claim()
        os.kill(worker, 0)  # it lives
    finally:
        kill(run)
        os.kill(worker, 9)
        os.close(reading)
        os.close(writing)


def test_a_child_does_not_think_it_holds_what_its_parent_holds(store: CheckpointManager) -> None:
    store.claim()

    def child() -> None:
        with pytest.raises(FolderInUseError):
            store.claim()
        store.close()

    assert outcome(child) == 0
    # The child's closing did not let go of the parent's.
    with pytest.raises(FolderInUseError):
        CheckpointManager(store.folder, keep_last=1).claim()


def test_a_holder_that_has_not_signed_yet_is_another_process(store: CheckpointManager) -> None:
    store.claim()
    for note in ("", "[]", '{"pid": "x"}'):
        (store.folder / ".lock").write_text(note)
        with pytest.raises(FolderInUseError, match="is being written by another process"):
            CheckpointManager(store.folder, keep_last=1).claim()


def test_without_locks_it_is_said_and_nothing_is_swept(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, warned: pytest.LogCaptureFixture
) -> None:
    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (store.folder / ".step-00000009.partial").mkdir(parents=True)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    save(store, 1)
    assert "file system without locks (No locks available): make sure that only one run" in warned.text
    assert ".step-00000009.partial" in names_in(store.folder)
    assert steps_in(store) == [1]
