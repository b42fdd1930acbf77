"""Fewer latents than prompts: the same answers as with every latent repeated, and less work for them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from calotype.engine.modules import winograd
from calotype.engine.modules.ops import Operations, convolution
from calotype.engine.modules.unet import Unet
from calotype.models.model import Model
from tests.unit.engine.modules.test_unet import TOLERANCE, far, model_of

PROMPTED = ("emoji", "sd15", "sd2-base")
"""Those whose prompts are seen by attention alone."""
TOKENS = 9
Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None]


class Guided:
    """A question for a UNet: latents, each with its own timestep, and two prompts for each."""

    def __init__(self, model: Model, latents: int = 1) -> None:
        torch.manual_seed(3)
        unet = model.architecture.unet
        self.sample = torch.randn(latents, unet["in_channels"], 16, 24)
        self.timesteps = torch.linspace(990, 41.5, latents).repeat(2)
        self.context = torch.randn(2 * latents, TOKENS, unet["cross_attention_dim"])
        lengths = torch.randint(1, TOKENS + 1, (2 * latents, 1))
        self.mask = torch.arange(TOKENS) < lengths

    def of_diffusers(self, model: Model, *, masked: bool) -> Tensor:
        with torch.inference_mode():
            return model.unet(
                self.sample.repeat(2, 1, 1, 1),
                self.timesteps,
                encoder_hidden_states=self.context,
                encoder_attention_mask=self.mask if masked else None,
                return_dict=False,
            )[0]

    def inputs(self, unet: Unet, *, masked: bool = False) -> Inputs:
        shifts, prompts = unet.shift_rows(self.timesteps), unet.prompt_rows(self.context)
        return self.sample, shifts, prompts, self.mask if masked else None

    def repeated(self, unet: Unet) -> Inputs:
        return self.sample.repeat(2, 1, 1, 1), *self.inputs(unet)[1:]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("latents", [1, 3])
@pytest.mark.parametrize("name", PROMPTED)
def test_it_says_what_diffusers_says_to_repeated_latents(name: str, latents: int, masked: bool) -> None:
    model = model_of(name)
    asked = Guided(model, latents)
    wanted = asked.of_diffusers(model, masked=masked)
    unet = Unet(model.unet, Operations())
    found = unet(*asked.inputs(unet, masked=masked))
    assert far(found, wanted) < TOLERANCE
    # The two prompts of a latent are two answers.
    assert far(wanted[:latents], wanted[latents:]) > TOLERANCE


@pytest.mark.parametrize("name", PROMPTED)
def test_with_its_own_deep_picture_a_cut_evaluation_is_the_whole_one(name: str) -> None:
    model = model_of(name)
    unet = Unet(model.unet, Operations())
    inputs = Guided(model, 2).inputs(unet)
    whole, deep = unet.with_deep(*inputs)
    assert torch.equal(unet.shallow(*inputs, deep), whole)


@pytest.mark.parametrize("joined", ["joined", "apart"])
def test_winograd_and_layouts_work_with_it(joined: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "MIN_TILES", 1)
    model, convolved = model_of("emoji"), winograd.Winograd()
    asked = Guided(model)
    wanted = asked.of_diffusers(model, masked=False)
    convolved.prepare(model.unet)
    unet = Unet(
        model.unet,
        Operations(convolution=convolved),
        channels_last=joined == "joined",
        joined_qkv=joined == "joined",
    )
    assert far(unet(*asked.inputs(unet)), wanted) < 5 * TOLERANCE


@pytest.mark.parametrize(("name", "alike"), [("emoji", 8), ("sd15", 3)])
def test_what_no_prompt_has_touched_is_convolved_once(name: str, alike: int) -> None:
    """The embedded model's first level and the next residual block; SD 1.5's first residual block."""
    rows: list[int] = []

    def noted(x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
        rows.append(len(x))
        return convolution(x, layer, bias)

    model = model_of(name)
    unet = Unet(model.unet, Operations(convolution=noted))
    unet(*Guided(model, 2).inputs(unet))
    assert rows == [2] * alike + [4] * (len(rows) - alike)
    assert len(rows) > 3 * alike


def test_what_was_compiled_for_repeated_latents_is_not_taken_for_it() -> None:
    model = model_of("emoji")
    unet = Unet(model.unet, Operations())
    asked, region = Guided(model), unet.region()
    signatures = {region.signature(region.kind(each)) for each in (asked.inputs(unet), asked.repeated(unet))}
    assert len(signatures) == 2
