"""Writing: one tensor at a time, and nothing left behind when it is interrupted."""

import gc
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.models.architecture import Architecture
from calotype.models.save import write_folder, write_single_file
from calotype.models.weights import NamedTensors, RandomWeights, TensorSpec, Weights
from tests.small_models import shrunk

EMOJI, SD2 = shrunk("emoji"), shrunk("sd2-base")

WRITERS: list[Any] = [
    pytest.param(lambda w, place: write_folder(w, place / "model"), id="folder"),
    pytest.param(lambda w, place: write_folder(w, place / "model", max_shard_bytes=10**5), id="shards"),
    pytest.param(lambda w, place: write_single_file(w, place / "model.safetensors"), id="single"),
]
Writer = Callable[[Weights, Path], None]


class _Watched:
    """Random weights that know which of their tensors are still alive, and that can be interrupted."""

    def __init__(self, architecture: Architecture, interrupt_after: int | None = None) -> None:
        self.architecture = architecture
        self._weights, self._interrupt_after = RandomWeights(architecture), interrupt_after
        self._alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
        self.most_alive, self.reads = 0, 0

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return self._weights.specs(part)

    def read(self, part: str, name: str) -> Tensor:
        if self.reads == self._interrupt_after:
            raise KeyboardInterrupt
        self.reads += 1
        tensor = self._weights.read(part, name)
        self._alive.add(tensor)
        self.most_alive = max(self.most_alive, len(self._alive))
        return tensor

    def extra(self) -> NamedTensors | None:
        return None


@pytest.mark.parametrize("write", WRITERS)
def test_tensors_are_not_kept(write: Writer, tmp_path: Path) -> None:
    """Two: one is let go when the next is already made. The single file joins three into one on its way."""
    weights = _Watched(SD2)
    gc.disable()  # what only the collector would free does not count as let go
    try:
        write(weights, tmp_path)
    finally:
        gc.enable()
    total = sum(len(weights.specs(part)) for part in SD2.parts())
    assert weights.reads == total > 100
    assert weights.most_alive <= 4


@pytest.mark.parametrize(
    "write", [*WRITERS, pytest.param(lambda w, place: write_single_file(w, place / "model.ckpt"), id="ckpt")]
)
@pytest.mark.parametrize("after", [0, 1, 150])
def test_interrupted_write_leaves_nothing(write: Writer, after: int, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(_Watched(EMOJI, interrupt_after=after), tmp_path)
    assert [*tmp_path.rglob("*")] == []


@pytest.mark.parametrize("write", WRITERS)
def test_same_weights_same_bytes(write: Writer, tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        write(RandomWeights(EMOJI, seed=1, dtype=torch.float16), tmp_path / place)
    first, second = (_contents(tmp_path / place) for place in ("one", "two"))
    assert first == second
    assert first


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_written_folder_can_be_read_by_everybody(tmp_path: Path) -> None:
    write_folder(RandomWeights(EMOJI), tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o755
