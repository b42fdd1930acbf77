"""A checkpoint that is not what was written is never loaded: the one before it is, and it is said why."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from calotype.train.checkpoint import CheckpointManager, DamagedCheckpointError
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state
from tests.unit.train.checkpoint.test_manager import save, steps_in


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position, os.SEEK_SET if position >= 0 else os.SEEK_END)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def set_step(path: Path) -> None:
    path.write_text(path.read_text().replace('"step": 2', '"step": 3'))


def set_format(path: Path) -> None:
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("state.safetensors", cut, r"state.safetensors has \d+ bytes, \d+ were written"),
    ("state.safetensors", Path.unlink, "state.safetensors cannot be read: No such file"),
    ("state.safetensors", lambda p: p.write_bytes(b""), "state.safetensors has 0 bytes"),
    ("state.safetensors", lambda p: flip(p, 0), "state.safetensors"),
    ("state.safetensors", lambda p: flip(p, 20), "state.safetensors"),
    ("state.safetensors", lambda p: flip(p, -1), r"state.safetensors: holds other bytes .*sha256"),
    ("state.json", lambda p: flip(p, 30), r"state.json: holds other bytes .*sha256"),
    ("rank-00000.safetensors", lambda p: flip(p, -1), "rank-00000.safetensors: holds other bytes"),
    ("rank-00000.json", cut, r"rank-00000.json has \d+ bytes"),
    ("complete.json", Path.unlink, "is not complete: .*complete.json: there is no such file"),
    ("complete.json", cut, "complete.json"),
    ("complete.json", set_step, "complete.json: holds other bytes than were written"),
    ("complete.json", set_format, r"has format 2, this version of Calotype reads 1; use the version"),
    ("complete.json", lambda p: p.write_text("{}"), "has format None"),
    ("complete.json", lambda p: p.write_text('{"format": 1}'), "does not have the fields of a manifest"),
]


@pytest.mark.parametrize(("name", "damage", "reason"), DAMAGES)
def test_the_one_before_is_loaded_and_the_reason_is_said(
    store: CheckpointManager,
    warned: pytest.LogCaptureFixture,
    name: str,
    damage: Callable[[Path], object],
    reason: str,
) -> None:
    save(store, 1, 2)
    damage(store.folder / "step-00000002" / name)
    loaded = store.load_newest()
    assert loaded is not None
    assert loaded.step == 1
    assert_same((loaded.shared, loaded.own), (small_state(1), own_state(1)))
    [record] = warned.records
    assert re.search(
        f"step-00000002 is damaged, so an earlier checkpoint is used.*{reason}", record.getMessage()
    )
    with pytest.raises(DamagedCheckpointError, match=reason):
        store.load(store.folder / "step-00000002")


def test_no_byte_of_any_file_can_change_unnoticed(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=1) as store:
        path = store.save(1, {"a": small_state(1)["weights"]["a"]}, None)
    for file in sorted(path.iterdir()):
        for position in range(file.stat().st_size):
            flip(file, position)
            with pytest.raises(DamagedCheckpointError):
                store.load(path)
            flip(file, position)
    assert store.load(path)[1] is None


def test_newest_says_what_it_does_not_count(
    store: CheckpointManager, warned: pytest.LogCaptureFixture
) -> None:
    save(store, 1, 2)
    cut(store.folder / "step-00000002" / "state.json")
    assert store.newest() == store.folder / "step-00000001"
    assert "step-00000002 does not count: state.json has" in warned.text


def test_a_folder_under_another_steps_name_does_not_count(store: CheckpointManager) -> None:
    save(store, 1)
    shutil.copytree(store.folder / "step-00000001", store.folder / "step-00000009")
    assert steps_in(store) == [1]


def test_when_none_can_be_read_nothing_is_begun_anew_in_silence(store: CheckpointManager) -> None:
    save(store, 1, 2)
    for step in (1, 2):
        cut(store.folder / f"step-0000000{step}" / "state.json")
    with pytest.raises(DamagedCheckpointError, match=r"no checkpoint that can be read .*resume=false"):
        store.load_newest()


def test_a_damaged_one_is_not_counted_among_the_last(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=2) as store:
        save(store, 1, 2)
        flip(folder / "step-00000002" / "state.safetensors", -1)
        store.load_newest()
        save(store, 3)
        assert steps_in(store) == [1, 3]
        cut(folder / "step-00000003" / "state.json")
        save(store, 4)
        assert steps_in(store) == [1, 4]


def test_a_damaged_one_stays_until_there_are_enough_sound_ones(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=3) as store:
        save(store, 1, 2)
        cut(folder / "step-00000002" / "state.json")
        save(store, 3)
        assert (folder / "step-00000002").exists()
        save(store, 4)
        assert not (folder / "step-00000002").exists()
        assert steps_in(store) == [1, 3, 4]


def test_a_damaged_one_that_is_saved_again_counts_again(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=2) as store:
        save(store, 1, 2)
        flip(folder / "step-00000002" / "state.safetensors", -1)
        store.load_newest()
        save(store, 2, 3)
        assert steps_in(store) == [2, 3]


@pytest.mark.parametrize(
    ("skeleton", "reason"),
    [
        ({"tensor": ["gone", None]}, "KeyError: 'gone'"),
        ({"odd": 1}, "KeyError: 'odd'"),
        ({"dtype": "load"}, "'load' is not a dtype"),
        ({"wrapped": ["os.system", [], []]}, "KeyError: 'os.system'"),
    ],
)
def test_a_skeleton_that_names_what_is_not_there_is_damage(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, skeleton: object, reason: str
) -> None:
    path = store.save(1, {}, {})
    text = json.dumps({"format": 1, "tensors": {"bytes": 1, "sha256": ""}, "state": skeleton})
    (path / "state.json").write_text(text)
    # As somebody could make it who also writes the digests.
    monkeypatch.setattr("calotype.train.checkpoint.serialization._compare", lambda *_: None)
    monkeypatch.setattr("calotype.train.checkpoint.discovery.broken_rule", lambda *_: None)
    with pytest.raises(DamagedCheckpointError, match=f"does not describe a state: .*{reason}"):
        store.load(path)
