"""Our own forward pass says what diffusers' says, over the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calotype.engine.modules.ops import Operations, add
from calotype.engine.modules.unet import Unet, reason_against
from calotype.models.model import Model, load_model
from calotype.models.resolve import random_identity
from calotype.models.weights import RandomWeights
from tests.small_models import shrunk

TOLERANCE = 2e-5
"""In fp32: sums are taken in another order."""
FAMILIES = ("sd15", "sd2-base", "sdxl", "emoji")


def model_of(name: str, dtype: torch.dtype = torch.float32) -> Model:
    architecture = shrunk(name)
    identity = random_identity(f"random:{name}", architecture, 0)
    return load_model(RandomWeights(architecture), identity, dtype=dtype, device=torch.device("cpu"))


class Asked:
    """A question for a model's UNet: three rows, each with its own prompt, timestep and noise."""

    def __init__(self, model: Model, size: tuple[int, int] = (16, 24), tokens: int = 9) -> None:
        generator = torch.Generator().manual_seed(4)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(model.dtype)

        unet = model.architecture.unet
        self.sample = drawn(3, unet["in_channels"], *size)
        self.timesteps = torch.tensor([999.0, 41.5, 500.0])
        self.context = drawn(3, tokens, unet["cross_attention_dim"])
        self.mask = torch.arange(tokens) < torch.tensor([[tokens], [2], [tokens - 1]])
        self.added: dict[str, Tensor] | None = None
        if model.architecture.family == "sdxl":
            width = model.text_encoders[1].config.projection_dim
            sizes = torch.tensor([[1001.0, 1024, 0, 3, 1024, 1024]]).expand(3, -1)
            self.added = {"text_embeds": drawn(3, width), "time_ids": sizes}

    def of_diffusers(self, unet: Any, *, masked: bool = False) -> Tensor:
        with torch.inference_mode():
            return unet(
                self.sample,
                self.timesteps,
                encoder_hidden_states=self.context,
                encoder_attention_mask=self.mask if masked else None,
                added_cond_kwargs=self.added,
                return_dict=False,
            )[0]

    def of_ours(self, unet: Unet, *, masked: bool = False) -> Tensor:
        shifts, prompts = unet.shift_rows(self.timesteps, self.added), unet.prompt_rows(self.context)
        return unet(self.sample, shifts, prompts, self.mask if masked else None)


def far(found: Tensor, wanted: Tensor) -> float:
    return ((found - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_it_says_what_diffusers_says(name: str, masked: bool) -> None:
    model = model_of(name)
    asked = Asked(model)
    wanted = asked.of_diffusers(model.unet, masked=masked)
    found = asked.of_ours(Unet(model.unet, Operations()), masked=masked)
    assert far(found, wanted) < TOLERANCE
    assert far(asked.of_diffusers(model.unet, masked=not masked), wanted) > TOLERANCE


@pytest.mark.parametrize("size", [(17, 22), (8, 8), (9, 31)])
def test_any_size_works(size: tuple[int, int]) -> None:
    model = model_of("sd15")
    asked = Asked(model, size)
    wanted = asked.of_diffusers(model.unet)
    assert far(asked.of_ours(Unet(model.unet, Operations())), wanted) < TOLERANCE


@pytest.mark.parametrize("switched_off", ["channels_last", "joined_qkv"])
def test_layout_and_joining_change_nothing(switched_off: str) -> None:
    model = model_of("sdxl")
    asked = Asked(model)
    wanted = asked.of_diffusers(model.unet)
    switches = {"channels_last": True, "joined_qkv": True, switched_off: False}
    unet = Unet(
        model.unet,
        Operations(),
        channels_last=switches["channels_last"],
        joined_qkv=switches["joined_qkv"],
    )
    found = asked.of_ours(unet)
    assert far(found, wanted) < TOLERANCE


def test_half_precision_is_as_near_to_full_as_diffusers_is() -> None:
    full, half = model_of("sd15"), model_of("sd15", torch.bfloat16)
    exact = Asked(full).of_diffusers(full.unet)
    asked = Asked(half)
    theirs = far(asked.of_diffusers(half.unet).float(), exact)
    ours = far(asked.of_ours(Unet(half.unet, Operations())).float(), exact)
    assert ours < 1.5 * theirs


@pytest.mark.parametrize("name", FAMILIES)
def test_sums_are_left_to_norms(name: str) -> None:
    """By themselves are done those before a change of size, and the last one of each transformer."""
    model = model_of(name)
    sums: list[torch.Size] = []

    def noted(x: Tensor, addend: Tensor, bias: Tensor | None = None) -> Tensor:
        sums.append(x.shape)
        return add(x, addend, bias)

    Asked(model).of_ours(Unet(model.unet, Operations(add=noted)))
    parts = [type(part).__name__ for part in model.unet.modules()]
    alone = sum(map(parts.count, ("Downsample2D", "Upsample2D", "Transformer2DModel")))
    assert len(sums) == alone


def test_weights_changed_in_place_are_the_ones_used() -> None:
    """As a LoRA does: joined layers still listen to the weights they were joined from."""
    model = model_of("sd15")
    asked, unet = Asked(model), Unet(model.unet, Operations())
    before = asked.of_ours(unet)
    with torch.no_grad():
        for name, parameter in model.unet.named_parameters():
            if parameter.ndim > 1 and not name.startswith(("conv_in", "conv_out")):
                parameter.mul_(1.05)
    wanted = asked.of_diffusers(model.unet)
    assert far(asked.of_ours(unet), wanted) < TOLERANCE
    assert far(before, wanted) > 100 * TOLERANCE


def test_parameters_keep_their_names_and_shapes() -> None:
    model = model_of("sdxl")
    before = {name: p.shape for name, p in model.unet.named_parameters()}
    Unet(model.unet, Operations())
    assert {name: p.shape for name, p in model.unet.named_parameters()} == before


def test_a_unet_of_another_kind_is_told_by_what_is_unusual() -> None:
    usual = model_of("sd15").unet
    assert reason_against(usual) is None
    usual.conv_act = nn.GELU()
    assert reason_against(usual) == "its UNet has an activation other than SiLU"
    usual.down_blocks[0].resnets[0].output_scale_factor = 2.0
    assert reason_against(usual) == "in its UNet a residual block scales by the time embedding or by a factor"
