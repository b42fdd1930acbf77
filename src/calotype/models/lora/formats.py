"""Reads the formats of LoRA files into (part, module) → update and validates every update."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.file_detection import BASE_BY_CONTEXT
from calotype.models.files.open import open_tensors
from calotype.models.files.safetensors_reader import TensorFile
from calotype.models.json_file import read_json
from calotype.models.lora.adapter import Adapter, LayerUpdate, Target
from calotype.models.lora.key_mapping import COMFY_TEXT_ENCODERS, LayerNames
from calotype.models.lora.metadata import DeclaredScaling
from calotype.models.resolve import configured_sha256, file_sha256

# The suffix of each tensor of a layer's update, in all formats.
TENSOR_SUFFIXES = {
    ".lora_down.weight": "down",
    ".lora_up.weight": "up",
    ".lora_mid.weight": "middle",
    ".lora.down.weight": "down",
    ".lora.up.weight": "up",
    "_lora.down.weight": "down",
    "_lora.up.weight": "up",
    ".lora_linear_layer.down.weight": "down",
    ".lora_linear_layer.up.weight": "up",
    ".lora_A.weight": "down",
    ".lora_B.weight": "up",
    ".alpha": "alpha",
}
OTHER_METHODS = {
    r"\.hada_[wt]\d": "LoHa",
    r"\.lokr_[wt]\d": "LoKr",
    r"\.dora_scale$|\.lora_magnitude_vector": "DoRA",
    r"\.diff(_b)?$": "a full difference",
    r"\.oft_\w+$": "OFT",
    r"\.[wb]_norm$": "a full norm",
    r"\.lora_embedding_[AB]": "LoRA of a token embedding table",
    r"\.lora_B(\.[^.]+)?\.bias$": "LoRA with biases",
    r"\.scalar$": "LoRA with a trained scale (LyCORIS)",
    r"\.[ab][12]\.weight$": "GLoRA",
    r"\.on_input$|\.ia3_l\b|^lora_\w+\.weight$": "IA3",
    r"^bundle_emb\.": "an embedding bundled with a LoRA",
}
PEFT_WEIGHTS, PEFT_SETTINGS = "adapter_model", "adapter_config.json"


class _Piece(NamedTuple):
    key: str
    tensor: Tensor


def read_adapter(path: Path, architecture: Architecture) -> Adapter:
    """Read a LoRA file, or a peft adapter folder, for a model of this architecture."""
    file, settings = _peft_folder(path) if path.is_dir() else (path, _peft_settings_beside(path))
    with open_tensors(file, inside=path if path.is_dir() else None) as tensors:
        layers = _read_layers(tensors, architecture, DeclaredScaling(tensors.metadata, settings))
    return Adapter(path.stem if path.is_file() else path.name, layers)


def adapter_sha256(path: Path) -> str:
    """A hash that identifies the LoRA in `path`, with a folder's settings, which scale it."""
    return configured_sha256(path, PEFT_SETTINGS) if path.is_dir() else file_sha256(path)


def _peft_folder(folder: Path) -> tuple[Path, dict[str, Any]]:
    settings = read_json(folder / PEFT_SETTINGS, inside=folder)
    files = [folder / f"{PEFT_WEIGHTS}{suffix}" for suffix in (".safetensors", ".bin")]
    return next((file for file in files if file.is_file()), files[0]), settings


def _peft_settings_beside(file: Path) -> dict[str, Any]:
    settings = file.parent / PEFT_SETTINGS
    return read_json(settings) if file.stem == PEFT_WEIGHTS and settings.is_file() else {}


def _read_layers(
    file: TensorFile, architecture: Architecture, declared: DeclaredScaling
) -> dict[Target, LayerUpdate]:
    names = LayerNames(architecture, declared.part)
    pieces: dict[Target, dict[str, _Piece]] = defaultdict(dict)
    for key in file:
        _refuse_other_methods(file.path, key)
        # peft may put the adapter's name before `.weight`.
        name = re.sub(r"\.(lora_[AB])\.[^.]+\.weight$", r".\1.weight", key)
        suffix = next((suffix for suffix in TENSOR_SUFFIXES if name.endswith(suffix)), None)
        target = names.find(name.removesuffix(suffix)) if suffix else None
        if target is None and _is_unused_comfy_zero(file, key):
            continue
        if suffix is None or target is None:
            rule = f"{key!r} names no layer of {architecture.title}; is it for another base model?"
            raise ModelFileError(file.path, rule)
        duplicate = pieces[target].get(TENSOR_SUFFIXES[suffix])
        if duplicate is not None:
            raise ModelFileError(
                file.path, f"{duplicate.key!r} and {key!r} are the same matrix of the same layer"
            )
        pieces[target][TENSOR_SUFFIXES[suffix]] = _Piece(key, _read_finite(file, key))
    if not pieces:
        raise ModelFileError(file.path, "holds no tensors, so it is no LoRA")
    return {
        target: _build_update(file.path, target, tensors, architecture, declared)
        for target, tensors in pieces.items()
    }


def _is_unused_comfy_zero(file: TensorFile, key: str) -> bool:
    """Whether this is an unused zero update of a text encoder.

    ComfyUI extracts updates of whole text encoders, including tables and a projection that no model uses.
    They are zero where both models share them.
    """
    return key.startswith(COMFY_TEXT_ENCODERS) and not file.read(key).any()


def _refuse_other_methods(path: Path, key: str) -> None:
    for pattern, method in OTHER_METHODS.items():
        if re.search(pattern, key):
            raise ModelFileError(path, f"{key!r} belongs to {method}, which is not supported: LoRA is")


def _read_finite(file: TensorFile, key: str) -> Tensor:
    tensor = file.read(key)
    # An alpha may be an integer.
    if tensor.dim() > 1 and not tensor.is_floating_point():
        raise ModelFileError(file.path, f"{key!r} is {tensor.dtype}; quantized LoRAs cannot be loaded")
    if not torch.isfinite(tensor.float()).all():
        raise ModelFileError(file.path, f"{key!r} holds NaN or infinity; every image would be black")
    return tensor


def _build_update(
    file: Path,
    target: Target,
    pieces: Mapping[str, _Piece],
    architecture: Architecture,
    declared: DeclaredScaling,
) -> LayerUpdate:
    for matrix in ("down", "up"):
        if matrix not in pieces:
            (first, *_) = pieces.values()
            rule = f"{first.key!r} has no matching {matrix!r} matrix; the file is incomplete"
            raise ModelFileError(file, rule)
    part, module = target
    _check_fit(file, pieces, architecture, part, module)
    down, up, middle = pieces["down"].tensor, pieces["up"].tensor, pieces.get("middle")
    rank = down.shape[0]
    alpha = _written_alpha(file, pieces.get("alpha"))
    if alpha is None:
        try:
            alpha = declared.alpha(target, rank)
        except ValueError as error:
            raise ModelFileError(file, str(error)) from error
    return LayerUpdate(down, up, float(rank) if alpha is None else alpha, middle.tensor if middle else None)


def _written_alpha(file: Path, piece: _Piece | None) -> float | None:
    if piece is None:
        return None
    if piece.tensor.numel() != 1:
        shape = list(piece.tensor.shape)
        raise ModelFileError(file, f"{piece.key!r} has shape {shape}, an alpha is a single number")
    return float(piece.tensor)


def _check_fit(
    file: Path, pieces: Mapping[str, _Piece], architecture: Architecture, part: str, module: str
) -> None:
    """Raise ModelFileError for matrices that do not fit each other or the layer."""
    (down_key, down), (up_key, up) = pieces["down"], pieces["up"]
    shape = architecture.tensor_shapes(part)[f"{module}.weight"]
    rank = down.shape[0] if down.dim() > 1 else 0
    core = (rank, rank, *shape[2:])
    middle = pieces.get("middle")
    if rank == 0 or up.dim() < 2 or prod(up.shape[1:]) != rank:
        sizes = f"it is {list(down.shape)}, {up_key!r} is {list(up.shape)}"
        raise ModelFileError(file, f"{down_key!r} and its up matrix differ in rank: {sizes}")
    if middle is not None and (len(shape) != 4 or tuple(middle.tensor.shape) != core):
        actual = list(middle.tensor.shape)
        needs = f"needs {list(core)}" if len(shape) == 4 else "is no convolution"
        raise ModelFileError(file, f"{middle.key!r} has shape {actual}, the layer {needs}")
    inputs, expected = prod(down.shape[1:]), prod(shape[1:]) if middle is None else shape[1]
    if inputs != expected or up.shape[0] != shape[0]:
        actual_size, needed = f"{up.shape[0]}×{inputs}", f"{shape[0]}×{expected}"
        base = (
            BASE_BY_CONTEXT.get(down.shape[1], "another base") if "attn2.to_k" in module else "another base"
        )
        rule = f"{down_key!r} belongs to an update of {actual_size}, {part}.{module} is {needed}"
        raise ModelFileError(file, f"{rule}; the LoRA is for {base}, the model is {architecture.title}")
