"""The mapping table between a single original file and the parts of a diffusers folder.

It has one `KeyMapping` per tensor of the original file: the corresponding diffusers tensors and the layout
change between them. Both reads and writes use this table, so both directions agree by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.key_mapping import open_clip, unet, vae
from calotype.models.key_mapping.prefixes import rename_prefixes

UNET = "model.diffusion_model."
VAE = "first_stage_model."
SD1_TEXT = "cond_stage_model.transformer."
SD2_TEXT = "cond_stage_model.model."
REFINER_TEXT = "conditioner.embedders.0.model."
SDXL_TEXT = ("conditioner.embedders.0.transformer.", "conditioner.embedders.1.model.")


CLIP_TEXT = (SD1_TEXT, SDXL_TEXT[0])
"""Prefixes of text encoders with the names of transformers."""
OPEN_CLIP_TEXT = (SD2_TEXT, REFINER_TEXT, SDXL_TEXT[1])
"""Prefixes of text encoders with the names of OpenCLIP."""


class Form(Enum):
    """How the layout of the original tensor differs from the diffusers one."""

    SAME = "same"
    POINTWISE = "1×1 convolution in the original, linear in diffusers"
    TRANSPOSED = "transposed in the original"
    JOINED = "one tensor in the original, several in diffusers"


@dataclass(frozen=True)
class KeyMapping:
    """One original tensor and its diffusers tensors: (part, tensor name) of each piece."""

    original: str
    pieces: tuple[tuple[str, str], ...]
    form: Form = Form.SAME

    def to_original(self, read: Callable[[str, str], Tensor]) -> Tensor:
        tensors = [read(part, name) for part, name in self.pieces]
        match self.form:
            case Form.JOINED:
                return torch.cat(tensors)
            case Form.POINTWISE:
                return tensors[0][..., None, None]
            case Form.TRANSPOSED:
                return tensors[0].T.contiguous()
            case Form.SAME:
                return tensors[0]

    def from_original(self, tensor: Tensor) -> list[Tensor]:
        """The pieces, in order; each owns its memory so that the joined tensor can be freed."""
        match self.form:
            case Form.JOINED:
                return [piece.clone() for piece in tensor.chunk(len(self.pieces))]
            case Form.POINTWISE:
                return [tensor.flatten(1)]
            case Form.TRANSPOSED:
                return [tensor.T.contiguous()]
            case Form.SAME:
                return [tensor]

    def original_shape(self, shapes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> tuple[int, ...]:
        first, *rest = (shapes[part][name] for part, name in self.pieces)
        match self.form:
            case Form.JOINED:
                return (first[0] + sum(shape[0] for shape in rest), *first[1:])
            case Form.POINTWISE:
                return (*first, 1, 1)
            case Form.TRANSPOSED:
                return first[::-1]
            case Form.SAME:
                return first


def usual_name(name: str) -> str:
    """The table's name for a tensor of a single file.

    transformers 5 and some merging tools omit the `text_model.` level of a text encoder. diffusers'
    conversion scripts then rename only some of the tensors.
    """
    for prefix in CLIP_TEXT:
        rest = name.removeprefix(prefix)
        if rest != name and rest.startswith(("embeddings.", "encoder.", "final_layer_norm.")):
            return f"{prefix}text_model.{rest}"
    for prefix in OPEN_CLIP_TEXT:
        rest = name.removeprefix(prefix)
        for old, new in open_clip.WITHOUT_LEVEL.items():
            if rest != name and rest.startswith(old):
                return f"{prefix}{new}{rest.removeprefix(old)}"
    return name


def key_mappings(architecture: Architecture, names: Collection[str] = ()) -> list[KeyMapping]:
    """The table for every tensor of `architecture`.

    Some text encoders have several naming schemes in files; the file's tensor `names` select one. Without
    `names`, the table has the names that the model's authors used.
    """
    table = _part_rows(architecture, "unet", UNET, unet.module_names(architecture.unet))
    table += vae_key_mappings(architecture, VAE)
    if architecture.family == "sdxl" and len(architecture.text_encoders) == 1:
        table += _open_clip_rows(architecture, "text_encoder_2", REFINER_TEXT, names)
    elif architecture.family == "sdxl":
        table += _same_name_rows(architecture, "text_encoder", SDXL_TEXT[0])
        table += _open_clip_rows(architecture, "text_encoder_2", SDXL_TEXT[1], names)
    elif architecture.family == "sd2" and not _only_transformers(names):
        table += _open_clip_rows(architecture, "text_encoder", SD2_TEXT, names)
    else:
        # diffusers' script also writes Stable Diffusion 2 this way if the `text_model.` level is missing.
        table += _same_name_rows(architecture, "text_encoder", SD1_TEXT)
    return table


def _only_transformers(names: Collection[str]) -> bool:
    """Whether a text encoder of Stable Diffusion 2 has the names of transformers."""
    return any(name.startswith(SD1_TEXT) for name in names) and not any(
        name.startswith(SD2_TEXT) for name in names
    )


def vae_key_mappings(architecture: Architecture, prefix: str) -> list[KeyMapping]:
    """The rows of the VAE alone; separate VAE files have no prefix."""
    return _part_rows(architecture, "vae", prefix, vae.module_names(architecture.vae))


def _part_rows(
    architecture: Architecture, part: str, prefix: str, modules: Mapping[str, str]
) -> list[KeyMapping]:
    rows = []
    for name, shape in architecture.tensor_shapes(part).items():
        original = rename_prefixes(name, modules)
        if original is None:
            rule = f"its {part} has {name!r}, which the original layout does not support"
            raise ModelFileError(architecture.name, f"{rule}; save it as a diffusers folder")
        module = name.rpartition(".")[0]
        pointwise = part == "vae" and module.endswith(vae.LINEAR_HERE_CONVOLUTION_THERE) and len(shape) == 2
        form = Form.POINTWISE if pointwise else Form.SAME
        rows.append(KeyMapping(f"{prefix}{original}", ((part, name),), form))
    return rows


def _same_name_rows(architecture: Architecture, part: str, prefix: str) -> list[KeyMapping]:
    return [KeyMapping(f"{prefix}{name}", ((part, name),)) for name in architecture.tensor_shapes(part)]


def _open_clip_rows(
    architecture: Architecture, part: str, prefix: str, file_names: Collection[str]
) -> list[KeyMapping]:
    num_layers = int(architecture.parts()[part]["num_hidden_layers"])
    rows = [
        KeyMapping(f"{prefix}{original}", tuple((part, piece) for piece in pieces), Form.JOINED)
        for original, pieces in open_clip.fused_keys(num_layers).items()
    ]
    joined = {piece for row in rows for _, piece in row.pieces}
    names = open_clip.state_dict_keys(num_layers)
    for name in architecture.tensor_shapes(part):
        if name not in joined:
            original, form = f"{prefix}{names[name]}", Form.SAME
            if name in open_clip.TRANSPOSED_THERE:
                # Older versions of diffusers' script keep the linear layer as it is, `.weight` included.
                linear = f"{prefix}{name}"
                original, form = (linear, Form.SAME) if linear in file_names else (original, Form.TRANSPOSED)
            rows.append(KeyMapping(original, ((part, name),), form))
    return rows
