"""Learned words in the dialects they are shared in, and those that fit no encoder of the model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.textual_inversion import read_embedding
from tests.small_models import shrunk

SD15, SDXL = shrunk("sd15"), shrunk("sdxl")
VECTORS = torch.arange(96.0).reshape(3, 32)
SECOND = -torch.arange(144.0).reshape(3, 48)


def _saved(place: Path, tensors: dict[str, Tensor]) -> Path:
    file = place / "word.safetensors"
    save_file(tensors, file)
    return file


def _pickled(place: Path, value: Any) -> Path:
    file = place / "word.pt"
    torch.save(value, file)
    return file


def _a1111(vectors: Tensor) -> dict[str, Any]:
    """As the textual-inversion code of 2022 saved them."""
    return {
        "string_to_token": {"*": torch.tensor(265)},
        "string_to_param": torch.nn.ParameterDict({"*": torch.nn.Parameter(vectors)}),
        "name": "word",
        "step": 4999,
        "sd_checkpoint": None,
    }


@pytest.mark.parametrize(
    "tensors",
    [{"emb_params": VECTORS}, {"<cat-toy>": VECTORS}, {"clip_l": VECTORS, "clip_g": SECOND}],
    ids=["emb_params", "diffusers", "for-sdxl-too"],
)
def test_safetensors_dialects(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    (found,) = read_embedding(_saved(tmp_path, tensors), SD15)
    assert torch.equal(found, VECTORS)


@pytest.mark.parametrize("value", [_a1111(VECTORS), {"<cat-toy>": VECTORS}], ids=["a1111", "diffusers"])
def test_pickle_dialects_come_through_the_sandbox(value: Any, tmp_path: Path) -> None:
    (found,) = read_embedding(_pickled(tmp_path, value), SD15)
    assert torch.equal(found, VECTORS)


def test_single_vector_is_a_word_of_one_token(tmp_path: Path) -> None:
    (found,) = read_embedding(_saved(tmp_path, {"<cat-toy>": VECTORS[0]}), SD15)
    assert torch.equal(found, VECTORS[:1])


def test_sdxl_has_vectors_for_both_encoders_by_name(tmp_path: Path) -> None:
    found = read_embedding(_saved(tmp_path, {"clip_g": SECOND, "clip_l": VECTORS}), SDXL)
    assert torch.equal(found[0], VECTORS)
    assert torch.equal(found[1], SECOND)


def test_half_precision_becomes_full(tmp_path: Path) -> None:
    (found,) = read_embedding(_saved(tmp_path, {"emb_params": VECTORS.half()}), SD15)
    assert found.dtype == torch.float32
    assert torch.equal(found, VECTORS)


@pytest.mark.parametrize(
    ("architecture", "tensors", "reason"),
    [
        (
            SD15,
            {"emb_params": SECOND},
            "has vectors of width 48; Stable Diffusion 1.5, shrunk needs 32: .*another",
        ),
        (SDXL, {"emb_params": VECTORS}, "needs 32 and 48"),
        (SDXL, {"clip_l": VECTORS}, "needs 32 and 48"),
        (SDXL, {"clip_l": SECOND, "clip_g": VECTORS.clone()}, "has vectors of width"),
        (
            SDXL,
            {"clip_l": VECTORS, "clip_g": SECOND[:2].clone()},
            "has 3 and 2 vectors for the text encoders",
        ),
        (SD15, {"emb_params": VECTORS.log()}, "'emb_params' holds NaN or infinity"),
        (SD15, {"emb_params": torch.full((1, 32), torch.nan)}, "'emb_params' holds NaN or infinity"),
        (SD15, {"emb_params": torch.zeros(76, 32)}, r"shape \[76, 32\], expected 1 to 75 vectors"),
        (SD15, {"emb_params": torch.zeros(0, 32)}, "expected 1 to 75 vectors"),
        (SD15, {"emb_params": torch.zeros(1, 1, 32)}, "expected 1 to 75 vectors"),
        (SD15, {"emb_params": torch.tensor(1.0)}, r"shape \[\], expected 1 to 75 vectors"),
        (SD15, {"a": torch.zeros(2), "b": torch.zeros(2)}, "is not an embedding: its tensors are a, b"),
    ],
)
def test_refused_with_the_reason(
    architecture: Any, tensors: dict[str, Tensor], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match=f"word.safetensors: .*{reason}"):
        read_embedding(_saved(tmp_path, tensors), architecture)
