"""Outlines against the libraries' modules of the same configuration: names, layers, numbers."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn
from transformers import CLIPTextModel

from calotype.engine.modules.fused_linear import fuse_linears
from calotype.engine.modules.vae_encoder import latent_mean
from calotype.models import catalogue
from calotype.models.architecture import Architecture, module_name, published_name
from calotype.models.skeleton import build_skeleton
from calotype.models.skeleton.clip_text import TextEncoder
from calotype.models.skeleton.fallback import Skeleton, library_class
from calotype.models.weights import RandomWeights
from tests.small_models import shrunk

IDS = torch.tensor([[512, 5, 300, 513, 513, 513], [512, 7, 8, 9, 10, 513]])


def filled(architecture: Architecture, part: str, module: nn.Module) -> Any:
    """The module with the random weights of its architecture."""
    weights = RandomWeights(architecture)
    state = {module_name(name, module): weights.read(part, name) for name in weights.specs(part)}
    module.to_empty(device="cpu").load_state_dict(state)
    for name, buffer in module.named_buffers():
        assert name.endswith("position_ids")
        buffer.copy_(torch.arange(buffer.shape[-1]).expand(buffer.shape))
    return module.requires_grad_(False).eval()


def both(architecture: Architecture, part: str) -> tuple[Any, Any]:
    """Ours and the library's, with the same weights."""
    return (
        filled(architecture, part, architecture.outline(part)),
        filled(architecture, part, architecture.build(part)),
    )


def layers(module: nn.Module, part: str) -> list[tuple[str, str, str]]:
    """Every layer with weights and what it was made with, in order."""
    return [
        (published_name(name, part), type(each).__name__, each.extra_repr())
        for name, each in module.named_modules()
        if each._parameters
    ]


@pytest.mark.parametrize("name", catalogue.names())
def test_every_model_of_the_catalogue_is_outlined_layer_by_layer(name: str) -> None:
    architecture = catalogue.architecture(name)
    for part in architecture.parts():
        ours, theirs = architecture.outline(part), architecture.build(part)
        assert type(ours) is not type(theirs), part
        shapes = [
            [(published_name(key, part), value.shape) for key, value in module.state_dict().items()]
            for module in (ours, theirs)
        ]
        assert shapes[0] == shapes[1], part
        assert layers(ours, part) == layers(theirs, part), part


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("unet", {"class_embed_type": "timestep"}),
        ("unet", {"down_block_types": ["DownBlock2D", "AttnDownBlock2D", "CrossAttnDownBlock2D"]}),
        ("unet", {"conv_in_kernel": 5}),
        ("unet", {"addition_embed_type": "text"}),
        ("unet", {"said_by_a_later_version": True}),
        ("vae", {"mid_block_add_attention": False}),
        ("vae", {"act_fn": "gelu"}),
        ("text_encoder", {"hidden_act": "relu"}),
        ("text_encoder", {"said_by_a_later_version": True}),
    ],
)
def test_what_is_not_known_is_left_to_the_libraries(part: str, changes: dict[str, Any]) -> None:
    assert build_skeleton(shrunk("emoji").parts()[part]) is not None
    assert build_skeleton({**shrunk("emoji").parts()[part], **changes}) is None


def test_a_model_with_something_unknown_is_built_by_its_library() -> None:
    small = shrunk("emoji")
    unusual = replace(small, unet={**small.unet, "conv_in_kernel": 5})
    assert isinstance(unusual.outline("unet"), UNet2DConditionModel)
    assert unusual.tensor_shapes("unet")["conv_in.weight"][2:] == (5, 5)
    assert isinstance(small.build("text_encoder"), CLIPTextModel)
    assert isinstance(small.outline("text_encoder"), TextEncoder)


@pytest.mark.parametrize(
    ("name", "part"),
    [("emoji", "text_encoder"), ("sd2-base", "text_encoder"), ("sdxl", "text_encoder_2")],
)
def test_a_text_encoder_says_what_transformers_does(name: str, part: str) -> None:
    """With both activations, both ways to find the end mark, and with a summary."""
    ours, theirs = both(shrunk(name), part)
    said, known = ours(IDS), theirs(input_ids=IDS, output_hidden_states=True)
    assert len(said.hidden_states) == len(known.hidden_states)
    for one, other in zip(said.hidden_states, known.hidden_states, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(said.last_hidden_state, known.last_hidden_state)
    if part == "text_encoder_2":
        torch.testing.assert_close(said.text_embeds, known.text_embeds)
    else:
        torch.testing.assert_close(said.pooler_output, known.pooler_output)


def _asked(unet: Any) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 4, 8, 8, generator=generator)
    words = torch.randn(2, 5, unet.config.cross_attention_dim, generator=generator)
    with torch.inference_mode():
        return unet(noise, torch.tensor([3.0, 700.0]), encoder_hidden_states=words, return_dict=False)[0]


def test_a_unet_asked_for_diffusers_forward_pass_gives_it_with_the_weights_it_has_now() -> None:
    ours, theirs = both(shrunk("sd15"), "unet")
    assert torch.equal(_asked(ours), _asked(theirs))
    attention = [each.mid_block.attentions[0].transformer_blocks[0].attn1 for each in (ours, theirs)]
    with torch.no_grad():
        # In place, as a LoRA does; and others in their place, as a pass does.
        for each in attention:
            each.to_v.weight.mul_(-1)
        fuse_linears([attention[0].to_q, attention[0].to_k, attention[0].to_v])
        attention[0].to_q.weight.mul_(2)
        attention[1].to_q.weight.mul_(2)
    assert torch.equal(_asked(ours), _asked(theirs))
    assert not any(name.startswith("_twin") for name, _ in ours.named_parameters())


def test_who_needs_the_librarys_class_gets_it() -> None:
    ours, theirs = both(shrunk("sd15"), "unet")
    made = library_class(ours)
    assert isinstance(made, UNet2DConditionModel)
    assert made.config.attention_head_dim == theirs.config.attention_head_dim
    assert made.conv_in.weight is ours.conv_in.weight
    assert library_class(theirs) is theirs


def test_a_copy_is_another_with_the_same_numbers() -> None:
    ours, theirs = both(shrunk("sd15"), "unet")
    other = deepcopy(ours)
    with torch.no_grad():
        ours.conv_in.weight.zero_()
    assert isinstance(other, Skeleton)
    assert torch.equal(_asked(other), _asked(theirs))


@pytest.mark.parametrize("name", ["emoji", "sdxl"])
def test_an_autoencoder_encodes_and_decodes_as_diffusers_does(name: str) -> None:
    ours, theirs = both(shrunk(name), "vae")
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 3, 40, 24, generator=generator)
    with torch.inference_mode():
        known = theirs.encode(pixels).latent_dist.mode()
        torch.testing.assert_close(latent_mean(ours, pixels), known)
        pictures = [vae.decode(known, return_dict=False)[0] for vae in (ours, theirs)]
    assert torch.equal(*pictures)
