"""Our own decoder makes the pixels of diffusers', also where its numbers are kept smaller."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.modules import vae_decoder
from calotype.engine.modules.ops import Operations
from calotype.engine.modules.vae_decoder import Decoder, NativeDecoders, reason_against
from calotype.engine.vae import decode_with_diffusers
from tests.unit.engine.modules.test_unet import FAMILIES, far, model_of

TOLERANCE = 2e-5


def latents(*size: int) -> Tensor:
    return torch.randn((2, 4, *size), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", FAMILIES)
def test_it_makes_the_pixels_of_diffusers(name: str) -> None:
    vae = model_of(name).vae
    wanted = decode_with_diffusers(vae, latents(9, 12))
    assert far(Decoder(vae, Operations(), torch.float32)(latents(9, 12)), wanted) < TOLERANCE


def test_attention_in_parts_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    vae = model_of("sd15").vae
    wanted = decode_with_diffusers(vae, latents(9, 12))
    monkeypatch.setattr("calotype.engine.modules.ops._MAX_SCORES", 2 * 108 * 25)
    assert far(Decoder(vae, Operations(), torch.float32)(latents(9, 12)), wanted) < TOLERANCE


def test_keeping_numbers_smaller_changes_nothing_but_their_size() -> None:
    """In full precision, where nothing is lost by it: the shrunk decoder says what it said before."""
    vae = model_of("sdxl").vae
    wanted = decode_with_diffusers(vae, latents(8, 8))
    small = copy.deepcopy(vae)
    largest = largest_inside(vae)
    vae_decoder._shrink(small.decoder)
    assert far(decode_with_diffusers(small, latents(8, 8)), wanted) < TOLERANCE
    assert largest_inside(small) < largest / 50


def largest_inside(vae: Any) -> float:
    """The largest number between two blocks of a decoder."""
    seen: list[float] = []
    blocks = [vae.decoder.conv_in, *(r for block in vae.decoder.up_blocks for r in block.resnets)]
    hooks = [block.register_forward_hook(lambda *a: seen.append(float(a[2].abs().max()))) for block in blocks]
    decode_with_diffusers(vae, latents(8, 8))
    for hook in hooks:
        hook.remove()
    return max(seen)


def test_numbers_past_fp16_are_no_obstacle() -> None:
    """A decoder whose inner pictures reach a million, as SDXL's may: fp16 ends at 65504."""
    vae = model_of("sdxl").vae
    with torch.no_grad():
        for layer in (vae.decoder.conv_in, vae.decoder.up_blocks[0].resnets[0].conv2):
            layer.weight.mul_(3e5)
    assert largest_inside(vae) > 65504
    wanted = decode_with_diffusers(vae, latents(8, 8))
    overflown = decode_with_diffusers(copy.deepcopy(vae).half(), latents(8, 8))
    assert not torch.isfinite(overflown).all()
    found = Decoder(vae, Operations(), torch.float16)(latents(8, 8))
    assert far(found, wanted) < 1e-2


def test_the_autoencoder_itself_is_left_alone() -> None:
    vae = model_of("sdxl").vae
    before = {name: tensor.clone() for name, tensor in vae.state_dict().items()}
    Decoder(vae, Operations(), torch.float16)
    assert all(torch.equal(tensor, before[name]) for name, tensor in vae.state_dict().items())


def test_each_autoencoder_has_its_own_decoder() -> None:
    one, other = model_of("sd15").vae, model_of("sd15").vae
    with torch.no_grad():
        other.decoder.conv_out.bias.add_(0.25)
    decode = NativeDecoders(Operations(), torch.float32, otherwise=decode_with_diffusers)
    for vae in (one, other, one):
        assert far(decode(vae, latents(8, 8)), decode_with_diffusers(vae, latents(8, 8))) < TOLERANCE


def test_an_autoencoder_of_another_kind_is_told_by_what_is_unusual() -> None:
    vae = model_of("sd15").vae
    assert reason_against(vae) is None
    vae.decoder.mid_block.attentions[0].heads = 2
    assert reason_against(vae) == "its autoencoder has no attention, or one with several heads"
