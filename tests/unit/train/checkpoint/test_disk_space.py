"""A disk that is full or may not be written to: said with folder, need and what is free; nothing is lost."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from calotype.core.errors import ExitCode
from calotype.train.checkpoint import CannotWriteError, CheckpointManager, NoDiskSpaceError
from calotype.train.checkpoint.disk_space import free_bytes
from calotype.train.checkpoint.flatten import flatten
from calotype.train.checkpoint.fs import NewFile
from calotype.train.checkpoint.serialization import needed_bytes, write_state
from tests.unit.train.checkpoint.faults import Disk
from tests.unit.train.checkpoint.states import assert_same, small_state
from tests.unit.train.checkpoint.test_manager import names_in, save, steps_in

Usage = namedtuple("Usage", "total used free")
LARGE = {"weights": torch.zeros(2**18)}


def test_too_little_room_is_noticed_before_the_first_byte(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**30, 2**30, 2**20))
    state = {"weights": LARGE["weights"].clone()}
    with Disk() as disk, pytest.raises(NoDiskSpaceError) as caught:
        store.save(2, state, None)
    error = caught.value
    assert disk.operations == []
    assert error.folder == store.folder
    assert error.free_bytes == 2**20
    assert error.needed_bytes is not None
    assert 2**20 < error.needed_bytes < 1.5 * 2**20
    for part in (str(store.folder), f"{error.needed_bytes} bytes are needed", "1048576 bytes are free"):
        assert part in str(error)
    assert "lower checkpoint.keep_last" in str(error)
    assert error.exit_code == ExitCode.DISK_FULL
    assert_same(state, LARGE)
    assert steps_in(store) == [1]


def test_every_rank_needs_room(store: CheckpointManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**30, 0, 3 * 2**20))
    store.save(1, None, LARGE)
    with pytest.raises(NoDiskSpaceError):
        store.save(2, None, LARGE, world_size=4, barrier=lambda: None)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_in_the_middle(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    save(store, 1)
    write = NewFile.write

    def full(file: NewFile, data: bytes) -> int:
        if len(data) > 1000:
            raise OSError(number, "No space left")
        return write(file, data)

    monkeypatch.setattr(NewFile, "write", full)
    with pytest.raises(NoDiskSpaceError, match=r"No space left \(\d+ bytes are needed, \d+ bytes are free\)"):
        store.save(2, LARGE, None)
    monkeypatch.undo()
    assert names_in(store.folder) == {".lock", "step-00000001"}
    save(store, 2)
    assert steps_in(store) == [1, 2]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("claimed", [False, True])
def test_a_folder_that_may_not_be_written_to(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, number: int, claimed: bool
) -> None:
    if claimed:
        store.claim()

    def refuse(path: Path, *_: object) -> None:
        raise OSError(number, "not here", str(path))

    monkeypatch.setattr("os.mkdir", refuse)
    with pytest.raises(CannotWriteError, match=r"not here: .*make it writable or choose another") as caught:
        save(store, 1)
    assert str(store.folder) in str(caught.value)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(CannotWriteError, match="File exists"):
        CheckpointManager(tmp_path / "run", keep_last=1).claim()


def test_room_is_asked_for_where_the_folder_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_bytes(tmp_path / "not" / "yet") is not None

    def unknown(place: Path) -> Usage:
        raise PermissionError

    monkeypatch.setattr(shutil, "disk_usage", unknown)
    assert free_bytes(tmp_path) is None


def test_the_need_is_never_said_too_small(tmp_path: Path) -> None:
    flat = flatten(small_state(1))
    marks = write_state(tmp_path, "state", flat)
    written = sum(mark.num_bytes for mark in marks.values())
    assert written <= needed_bytes(flat) <= written + 2**17
