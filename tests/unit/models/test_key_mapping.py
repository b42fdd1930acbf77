"""Our table of original names against diffusers' own converters, which were written without it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from diffusers.loaders.single_file_utils import (
    convert_ldm_clip_checkpoint,
    convert_ldm_unet_checkpoint,
    convert_ldm_vae_checkpoint,
    convert_open_clip_checkpoint,
)
from safetensors.torch import load_file
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.diffusers_layout import read_architecture
from calotype.models.key_mapping.ldm import key_mappings
from calotype.models.save import write_single_file
from calotype.models.weights import FolderWeights
from tests.small_models import shrunk
from tests.unit.models.conftest import FolderOf
from tests.unit.models.on_disk import assert_same_tensors, folder_tensors

FULL_SIZE = ["sd15", "sd2-base", "sdxl", "sdxl-refiner"]


class _EncoderLike:
    """What diffusers' OpenCLIP converter looks at: only the width, and only if the file does not show it."""

    def __init__(self, config: Any) -> None:
        self.config = type("Config", (), {"hidden_size": config["hidden_size"]})


def _encoders(name: str, file: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    configs = shrunk(name).text_encoders
    if name == "sd15":
        return {"text_encoder": convert_ldm_clip_checkpoint(file)}
    if name == "sd2-base":
        return {"text_encoder": convert_open_clip_checkpoint(_EncoderLike(configs[0]), file)}
    place = len(configs) - 1
    second = convert_open_clip_checkpoint(
        _EncoderLike(configs[place]), file, prefix=f"conditioner.embedders.{place}.model."
    )
    if name == "sdxl-refiner":
        return {"text_encoder_2": second}
    return {"text_encoder": convert_ldm_clip_checkpoint(file), "text_encoder_2": second}


@pytest.mark.parametrize("name", FULL_SIZE)
def test_diffusers_finds_every_tensor_in_our_single_file(
    name: str, folder_of: FolderOf, tmp_path: Path
) -> None:
    folder, target = folder_of(name), tmp_path / "single.safetensors"
    with FolderWeights(folder, read_architecture(folder)) as weights:
        write_single_file(weights, target)
    file, expected = load_file(target), folder_tensors(folder)
    unet = convert_ldm_unet_checkpoint(dict(file), dict(shrunk(name).unet))
    assert_same_tensors(unet, expected["unet"])
    assert_same_tensors(convert_ldm_vae_checkpoint(dict(file), dict(shrunk(name).vae)), expected["vae"])
    for part, tensors in _encoders(name, file).items():
        assert_same_tensors(tensors, expected[part])


@pytest.mark.parametrize("name", [*FULL_SIZE, "emoji"])
def test_every_tensor_has_one_original_name(name: str) -> None:
    architecture = catalogue.architecture(name)
    rows = key_mappings(architecture)
    pieces = Counter(piece for row in rows for piece in row.pieces)
    everything = {
        (part, tensor) for part in architecture.parts() for tensor in architecture.tensor_shapes(part)
    }
    assert pieces.keys() == everything
    assert set(pieces.values()) == {1}
    assert len({row.original for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("sd15", "model.diffusion_model.input_blocks.3.0.op.weight", (320, 320, 3, 3)),
        ("sd15", "model.diffusion_model.output_blocks.2.1.conv.weight", (1280, 1280, 3, 3)),
        ("sd15", "model.diffusion_model.output_blocks.5.2.conv.weight", (1280, 1280, 3, 3)),
        ("sd15", "first_stage_model.decoder.mid.attn_1.q.weight", (512, 512, 1, 1)),
        ("sd15", "first_stage_model.decoder.up.0.block.0.nin_shortcut.weight", (128, 256, 1, 1)),
        ("sd2-base", "cond_stage_model.model.transformer.resblocks.22.attn.in_proj_weight", (3072, 1024)),
        ("sd2-base", "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias", (320,)),
        ("sdxl", "model.diffusion_model.label_emb.0.0.weight", (1280, 2816)),
        ("sdxl", "model.diffusion_model.middle_block.1.transformer_blocks.9.attn2.to_k.weight", (1280, 2048)),
        ("sdxl", "conditioner.embedders.1.model.positional_embedding", (77, 1280)),
    ],
)
def test_published_files_have_these_tensors(name: str, tensor: str, shape: tuple[int, ...]) -> None:
    """Some of the names that single files are known by, one for each rule that is easy to get wrong."""
    architecture = catalogue.architecture(name)
    shapes = {part: architecture.tensor_shapes(part) for part in architecture.parts()}
    rows = {row.original: row for row in key_mappings(architecture)}
    assert rows[tensor].original_shape(shapes) == shape


def test_layer_without_an_original_name_is_refused_by_name() -> None:
    small = shrunk("sd15")
    odd = type(small).from_dict(
        {**small.as_dict(), "unet": {**small.unet, "class_embed_type": "timestep", "num_class_embeds": None}}
    )
    with pytest.raises(
        ModelFileError, match=r"unet has 'class_embedding.linear_1.weight', which the original"
    ):
        key_mappings(odd)
