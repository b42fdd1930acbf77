"""Reading: what we read is what the safetensors library wrote, for every dtype there is."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from calotype.core.errors import ModelFileError
from calotype.models.files.dtypes import TORCH_DTYPES
from calotype.models.files.safetensors_reader import open_safetensors
from tests.unit.models.files.specimens import safetensors_bytes


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN equals itself and types without arithmetic can be compared."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def random_tensors() -> dict[str, torch.Tensor]:
    """Random bits of every dtype, with shapes that have nothing in common."""
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for number, (name, dtype) in enumerate(TORCH_DTYPES.items()):
        raw = torch.randint(0, 2 if dtype == torch.bool else 256, (6, 8 * number + 8), generator=generator)
        tensors[f"layer.{name}"] = raw.to(torch.uint8).view(dtype)
    tensors |= {"scalar": torch.tensor(3.5), "nothing": torch.empty(0, 4), "ünïcode": torch.ones(1, 1, 1)}
    return tensors


def test_every_dtype_reads_as_the_library_wrote_it(tmp_path: Path) -> None:
    expected = random_tensors()
    save_file(expected, tmp_path / "all.safetensors", metadata={"format": "pt", "note": "x"})
    with open_safetensors(tmp_path / "all.safetensors") as tensors:
        assert tensors.keys() == expected.keys()
        assert tensors.metadata == {"format": "pt", "note": "x"}
        assert tensors.size_bytes == sum(t.nbytes for t in expected.values())
        assert len(tensors) == len(expected)
        assert "scalar" in tensors
        assert "other" not in tensors
        for name, value in expected.items():
            result = tensors.read(name)
            assert (result.dtype, result.shape) == (value.dtype, value.shape)
            assert torch.equal(bits(result), bits(value))
            assert tensors.entry(name).shape == tuple(value.shape)


def test_a_missing_tensor_is_named_with_its_neighbours(tmp_path: Path) -> None:
    save_file({"down.0.weight": torch.zeros(1), "mid": torch.zeros(1)}, tmp_path / "m.safetensors")
    with open_safetensors(tmp_path / "m.safetensors") as tensors:
        with pytest.raises(
            ModelFileError, match=r"m\.safetensors: has no tensor 'down\.0\.weigth' among its 2; did"
        ):
            tensors.read("down.0.weigth")
        with pytest.raises(ModelFileError, match=r"has no tensor 'zzz' among its 2$"):
            tensors.entry("zzz")


def test_a_boolean_that_is_no_boolean_is_refused(tmp_path: Path) -> None:
    header = {"mask": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}
    (tmp_path / "m.safetensors").write_bytes(safetensors_bytes(header, b"\0\1\2"))
    with (
        open_safetensors(tmp_path / "m.safetensors") as tensors,
        pytest.raises(ModelFileError, match="byte 2 is"),
    ):
        tensors.read("mask")


def test_a_pickle_is_not_accepted_where_safetensors_must_be(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match="is a torch zip pickle; only safetensors are accepted here"):
        open_safetensors(tmp_path / "m.safetensors")
