"""A crash at any operation on the disk: the last complete checkpoint is there, and the next save works."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from calotype.train.checkpoint import CannotWriteError, CheckpointManager
from tests.unit.train.checkpoint.children import outcome
from tests.unit.train.checkpoint.faults import KILLED, Disk, die, refuse
from tests.unit.train.checkpoint.states import assert_same, own_state, small_state
from tests.unit.train.checkpoint.test_manager import FILES, names_in, save

OLD, NEW, LATER = 1, 2, 3
"""Which state is saved: that of the checkpoint before, that of the interrupted save, that of the next run."""


@dataclass(frozen=True)
class Scene:
    """A save that is interrupted. `keep_last` is 1, so that it also removes."""

    old_step: int
    new_step: int

    def prepare(self, folder: Path) -> None:
        with CheckpointManager(folder, keep_last=1) as store:
            store.save(self.old_step, small_state(OLD), own_state(OLD))
        # What an earlier crash left, so that sweeping is interrupted as well.
        (folder / ".step-00000005.partial").mkdir()
        (folder / ".step-00000005.partial" / "state.json").write_text("{")

    def save(self, folder: Path) -> None:
        with CheckpointManager(folder, keep_last=1) as store:
            store.save(self.new_step, small_state(NEW), own_state(NEW))

    def operations(self, folder: Path) -> tuple[int, int]:
        """How many there are, and the number of the one that makes the new checkpoint count."""
        self.prepare(folder)
        with Disk() as disk:
            self.save(folder)
        name = f"step-{self.new_step:08d}"
        return len(disk.operations), disk.number_of("rename", f".{name}.partial", name)


SCENES = [
    pytest.param(Scene(old_step=100, new_step=200), id="next step"),
    pytest.param(Scene(old_step=100, new_step=100), id="same step again"),
    pytest.param(Scene(old_step=100, new_step=50), id="gone back"),
]


def check_after(folder: Path, expected: int, where: str) -> None:
    """The right one is found and loaded, as it was; then a new run saves and leaves no trace of the crash."""
    with CheckpointManager(folder, keep_last=1) as store, Disk():
        loaded = store.load_newest()
        assert loaded is not None, where
        assert store.newest() == loaded.path, where
        assert_same((loaded.shared, loaded.own), (small_state(expected), own_state(expected)), where)
        store.claim()
        again = store.load_newest()
        assert again is not None, where
        assert_same(again.shared, small_state(expected), where)
        save(store, LATER)
        assert names_in(folder) == {".lock", "step-00000003"}, where
        assert_same(store.load(folder / "step-00000003")[0], small_state(LATER), where)


@pytest.mark.parametrize("scene", SCENES)
def test_killed_before_any_operation(tmp_path: Path, scene: Scene) -> None:
    count, counts_from = scene.operations(tmp_path / "whole")
    scene.prepare(tmp_path / "before")

    def interrupted(folder: Path, at: int) -> None:
        with Disk(at, die):
            scene.save(folder)

    for at in range(count):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "before", folder)
        assert outcome(partial(interrupted, folder, at)) == KILLED, at
        check_after(folder, NEW if at > counts_from else OLD, f"killed before operation {at}")


@pytest.mark.parametrize("scene", SCENES)
def test_refused_at_any_operation(tmp_path: Path, scene: Scene) -> None:
    count, counts_from = scene.operations(tmp_path / "whole")
    scene.prepare(tmp_path / "before")
    messages = []
    for at in range(count):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "before", folder)
        try:
            with Disk(at, refuse):
                scene.save(folder)
            expected = NEW
        except CannotWriteError as error:
            messages.append(str(error))
            expected = NEW if at > counts_from else OLD
        check_after(folder, expected, f"refused at operation {at}")
    assert len(messages) > 10
    assert all(message.startswith(f"cannot write a checkpoint into {tmp_path}") for message in messages)


@pytest.mark.parametrize("stage", ["check_free_space", "write_state", "write_manifest"])
def test_whoever_fails_still_comes_to_every_barrier(
    store: CheckpointManager, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Or the other ranks would wait for it for ever."""
    met: list[int] = []

    def barrier() -> None:
        met.append(1)

    store.save(1, {}, {}, barrier=barrier)
    num_barriers = len(met)
    monkeypatch.setattr(f"calotype.train.checkpoint.writer.{stage}", lambda *_: refuse())
    with pytest.raises(Exception, match="the disk failed"):
        store.save(2, {}, {}, barrier=barrier)
    assert len(met) == 2 * num_barriers


def test_in_the_order_that_survives_a_power_cut(folder: Path) -> None:
    with CheckpointManager(folder, keep_last=1) as store:
        save(store, 1)
        with Disk() as disk:
            save(store, 2)
    number = disk.number_of
    unfinished = ".step-00000002.partial"
    begun = number("create", "complete.json")
    names_synced = number("fsync", unfinished)
    for name in FILES:
        assert number("write", name) < number("fsync", name) < names_synced < begun
    assert begun < number("write", "complete.json") < number("fsync", "complete.json")
    placed = number("rename", unfinished, "step-00000002")
    later_syncs = [
        at
        for at, operation in enumerate(disk.operations)
        if operation == ("fsync", unfinished) and at > begun
    ]
    assert later_syncs
    assert max(later_syncs) < placed
    assert disk.operations[placed + 1 : placed + 3] == [("open", folder.name), ("fsync", folder.name)]
    renamed_away = number("rename", "step-00000001", ".step-00000001.removed")
    first_deleted = next(at for at, (kind, *_) in enumerate(disk.operations) if kind == "unlink")
    assert placed + 2 < renamed_away < first_deleted


def test_an_interrupt_from_the_keyboard_leaves_nothing_behind(folder: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with CheckpointManager(folder, keep_last=1) as store:
        save(store, 1)
        with Disk() as disk:
            store.save(1, small_state(1), own_state(1))
        middle = disk.number_of("create", "rank-00000.json")
        with pytest.raises(KeyboardInterrupt), Disk(middle, interrupt):
            save(store, 2)
        assert names_in(folder) == {".lock", "step-00000001"}


@pytest.mark.parametrize("content", ["{}", None])
def test_sweeping_puts_back_what_was_set_aside(folder: Path, content: str | None) -> None:
    with CheckpointManager(folder, keep_last=3) as store:
        save(store, 1, 2)
    (folder / "step-00000002").rename(folder / ".step-00000002.replaced")
    if content is not None:
        (folder / ".step-00000002.partial").mkdir()
        (folder / ".step-00000002.partial" / "state.json").write_text(content)
    with CheckpointManager(folder, keep_last=3) as store:
        assert store.newest() == folder / ".step-00000002.replaced"
        store.claim()
        assert store.newest() == folder / "step-00000002"
    assert names_in(folder) == {".lock", "step-00000001", "step-00000002"}


Sweeper = Callable[[CheckpointManager], object]


@pytest.mark.parametrize("sweep", [CheckpointManager.claim, lambda store: save(store, 9)])
def test_leftovers_of_dead_runs_are_swept(folder: Path, sweep: Sweeper) -> None:
    for name in (".step-00000004.partial", ".step-00000001.removed", ".step-00000002.replaced.removed"):
        (folder / name).mkdir(parents=True)
        (folder / name / "state.safetensors").write_bytes(b"half")
    with CheckpointManager(folder, keep_last=3) as store:
        sweep(store)
    assert not [name for name in names_in(folder) if name.startswith(".step")]
