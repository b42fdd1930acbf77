"""Stores the activation ranges after each norm of a UNet's transformers, measured once per model.

A file belongs to exactly the weights it was made with: its name is a key of their digest, and its metadata is
compared with the model at every use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from calotype.core.errors import CalotypeError, NotFoundError
from calotype.core.paths import atomic_write, cache_dir
from calotype.models.model import Model
from calotype.version import VERSION

FORMAT = 1
"""Incremented when older files can no longer be used."""

Ranges = Mapping[str, Tensor]
"""Norm's name → the largest absolute value of each output channel, in fp32."""


def norms_of(unet: nn.Module) -> Iterator[tuple[str, nn.LayerNorm, list[nn.Linear]]]:
    """Every norm of the transformers by name, with the layers that read only its output."""
    for name, block in unet.named_modules():
        if type(block).__name__ == "BasicTransformerBlock":
            parts: Any = block
            own = parts.attn1
            yield f"{name}.norm1", parts.norm1, [own.to_q, own.to_k, own.to_v]
            yield f"{name}.norm2", parts.norm2, [parts.attn2.to_q]
            yield f"{name}.norm3", parts.norm3, [parts.ff.net[0].proj]


def calibration_file(model: Model) -> Path:
    """The calibration file of a model's weights."""
    key = hashlib.sha256(json.dumps([FORMAT, model.identity.sha256]).encode()).hexdigest()[:16]
    return cache_dir() / "calibrations" / f"{key}.safetensors"


def save_ranges(model: Model, ranges: Ranges, about: Mapping[str, str]) -> Path:
    """Write a calibration atomically; `about` is metadata on how it was made."""
    path = calibration_file(model)
    metadata = {**about, "format": str(FORMAT), "model": model.identity.sha256, "calotype": VERSION}
    with atomic_write(path) as file:
        file.write(save(dict(ranges), metadata))
    return path


def load_ranges(model: Model) -> Ranges:
    """Load the calibration of the model's weights; refused if it belongs to others, or does not fit."""
    path = calibration_file(model)
    if not path.exists():
        raise NotFoundError(f"{model.identity.reference} has not been calibrated; {_fix(model)}")
    try:
        with safe_open(path, "pt") as file:
            metadata, ranges = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CalotypeError(f"{path} cannot be read: {error}; {_fix(model)}") from error
    if (metadata.get("format"), metadata.get("model")) != (str(FORMAT), model.identity.sha256):
        raise CalotypeError(f"{path} belongs to other weights than {model.identity.reference}; {_fix(model)}")
    expected = {name: tuple(norm.weight.shape) for name, norm, _ in norms_of(model.unet)}
    if {name: tuple(each.shape) for name, each in ranges.items()} != expected:
        raise CalotypeError(f"{path} does not fit the norms of {model.identity.reference}; {_fix(model)}")
    return ranges


def _fix(model: Model) -> str:
    return f"run `calotype engine calibrate {model.identity.reference}`"
