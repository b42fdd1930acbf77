"""Model files as the safetensors library and torch see them, to compare with what our own readers say."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from calotype.models.architecture import Architecture
from calotype.models.key_mapping.ldm import key_mappings
from calotype.models.weights import RandomWeights, Weights

STEMS = ("diffusion_pytorch_model", "model")


def folder_tensors(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Part → name → tensor of a diffusers folder of safetensors, sharded or not."""
    parts = sorted(config.parent for config in folder.glob("*/config.json"))
    return {part.name: _part_tensors(part) for part in parts}


def _part_tensors(part: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in sorted(part.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def read_weights(weights: Weights) -> dict[str, dict[str, Tensor]]:
    """Part → name → tensor of our own weights."""
    parts = weights.architecture.parts()
    return {part: {name: weights.read(part, name) for name in weights.specs(part)} for part in parts}


def original_tensors(architecture: Architecture, seed: int = 0) -> dict[str, Tensor]:
    """Random weights in the original layout, in memory."""
    weights = RandomWeights(architecture, seed)
    return {row.original: row.to_original(weights.read).contiguous() for row in key_mappings(architecture)}


def assert_same_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """The same names, dtypes, shapes and bits."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def assert_same_parts(
    found: Mapping[str, Mapping[str, Tensor]], expected: Mapping[str, Mapping[str, Tensor]]
) -> None:
    assert found.keys() == expected.keys()
    for part, tensors in expected.items():
        assert_same_tensors(found[part], tensors)
