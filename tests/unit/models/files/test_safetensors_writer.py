"""Writing: byte for byte the library's file, one tensor in memory, and whole or not there."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from calotype.models.files.safetensors_writer import write_safetensors
from tests.unit.models.files.test_safetensors_reader import bits, random_tensors


def declared(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_the_file_is_the_librarys_byte_for_byte(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    tensors = random_tensors()
    write_safetensors(tmp_path / "ours", declared(tensors), tensors.__getitem__, metadata)
    save_file(tensors, tmp_path / "theirs", metadata=metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    tensors = random_tensors()
    write_safetensors(tmp_path / "ours", declared(tensors), tensors.__getitem__, {"a": "1", "b": "zwei"})
    loaded = load_file(tmp_path / "ours")
    assert loaded.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(bits(loaded[name]), bits(value))
    with safe_open(tmp_path / "ours", "pt") as file:
        assert file.metadata() == {"a": "1", "b": "zwei"}


def test_tensors_are_asked_for_one_by_one_and_any_layout_will_do(tmp_path: Path) -> None:
    sources = {"t": torch.arange(6.0).reshape(2, 3).t(), "g": torch.nn.Parameter(torch.ones(2))}
    asked = []

    def produce(name: str) -> torch.Tensor:
        asked.append(name)
        return sources[name]

    write_safetensors(tmp_path / "m", {"t": (torch.float32, (3, 2)), "g": (torch.float32, [2])}, produce)
    assert asked == ["g", "t"]
    assert torch.equal(load_file(tmp_path / "m")["t"], sources["t"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "m.safetensors"
    target.write_bytes(b"before")

    def produce(name: str) -> torch.Tensor:
        if name == "b":
            raise error
        return torch.zeros(1000)

    with pytest.raises(error):
        write_safetensors(target, dict.fromkeys("ab", (torch.float32, (1000,))), produce)
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("name", "made", "metadata", "message"),
    [
        (
            "w",
            torch.zeros(3),
            None,
            r"'w' was declared as torch.float32 \(2,\) but produced as torch.float32 \(3,\)",
        ),
        ("w", torch.zeros(2).half(), None, r"produced as torch.float16 \(2,\)"),
        ("w", torch.zeros(2), {"n": 1}, "metadata maps text to text"),
        ("__metadata__", torch.zeros(2), None, "is no tensor's name"),
        ("a.__class__", torch.zeros(2), None, "Python-internal"),
    ],
)
def test_a_write_that_would_not_be_readable_is_an_error(
    tmp_path: Path, name: str, made: torch.Tensor, metadata: dict[str, str] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_safetensors(tmp_path / "m", {name: (torch.float32, (2,))}, lambda _: made, metadata)
    assert list(tmp_path.iterdir()) == []


def test_a_dtype_the_format_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot hold torch\.complex128"):
        write_safetensors(tmp_path / "m", {"w": (torch.complex128, (2,))}, lambda _: torch.zeros(2))
