"""Passes change where and how numbers are computed, not which."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from diffusers.models.activations import GEGLU
from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from calotype.engine.passes.channel_sum_group_norm import ChannelSumNorm, use_channel_sum_group_norm
from calotype.engine.passes.channels_last import doubled, use_channels_last
from calotype.engine.passes.fused_geglu_backward import use_fused_geglu_backward
from calotype.engine.passes.unscaled_attention_processor import (
    UnscaledAttentionProcessor,
    use_unscaled_attention,
)
from calotype.engine.passes.vae_attention import VaeAttention, use_vae_attention
from tests.small_models import shrunk

FAMILIES = ("sd15", "sd2-base", "sdxl")


def network(name: str) -> Any:
    torch.manual_seed(0)
    return UNet2DConditionModel.from_config(dict(shrunk(name).unet)).train()


def asked(unet: Any, count: int = 2, **changes: Any) -> Tensor:
    """The network's answer to a fixed question."""
    generator = torch.Generator().manual_seed(1)
    config = unet.config
    told: dict[str, Any] = {}
    if config.addition_embed_type == "text_time":
        width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        told["added_cond_kwargs"] = {
            "text_embeds": torch.randn(count, width, generator=generator),
            "time_ids": torch.randn(count, 6, generator=generator),
        }
    noisy = torch.randn(count, 4, 16, 16, generator=generator).to(memory_format=torch.channels_last)
    context = torch.randn(count, 7, config.cross_attention_dim, generator=generator)
    timesteps = torch.arange(count) * 10
    return unet(noisy, timesteps, context, return_dict=False, **told, **changes)[0]


def gradients(answer: Tensor, unet: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(answer.square().mean(), list(unet.parameters())))


def assert_near(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert (found - wanted).detach().abs().max() <= tolerance * wanted.detach().abs().max()


@pytest.mark.parametrize("name", FAMILIES)
def test_channels_last_and_channel_sums_give_the_same_answers_and_gradients(name: str) -> None:
    plain = network(name)
    changed = copy.deepcopy(plain)
    use_channels_last(changed)
    use_channel_sum_group_norm(changed)
    assert [n for n, _ in changed.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert changed.state_dict().keys() == plain.state_dict().keys()
    wanted, found = asked(plain), asked(changed)
    # Measured: 1.5e-6, and 9e-6 of a gradient's largest number.
    assert_near(found, wanted, 1e-5)
    for one, other in zip(gradients(found, changed), gradients(wanted, plain), strict=True):
        assert_near(one, other, 1e-4)


def test_an_autoencoder_with_channel_sums_gives_the_same_pictures_and_gradients() -> None:
    torch.manual_seed(0)
    plain = AutoencoderKL.from_config(dict(shrunk("sd15").vae)).train()
    changed = copy.deepcopy(plain)
    use_channels_last(changed)
    use_channel_sum_group_norm(changed)
    picture = torch.randn(2, 3, 32, 32)
    wanted, found = (vae(picture).sample for vae in (plain, changed))
    assert_near(found, wanted, 1e-5)
    # All in one: that of a key's bias is zero but for rounding, whoever computes it.
    one, other = (
        torch.cat([g.flatten() for g in gradients(*both)]) for both in ((found, changed), (wanted, plain))
    )
    assert_near(one, other, 1e-4)


def test_gradients_need_the_picture_before_a_norm_and_the_one_behind_its_silu_and_no_other() -> None:
    """Four of a block with two norms; kept in single precision, what is between them were two more."""
    torch.manual_seed(0)
    block = ResnetBlock2D(in_channels=32, out_channels=32, temb_channels=16)
    use_channel_sum_group_norm(block)
    picture = torch.randn(2, 32, 16, 16, requires_grad=True)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    # The compiler's own choice of what to keep, without the compiling.
    compiled = torch.compile(block, backend="aot_eager_decomp_partition", fullgraph=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        compiled(picture, torch.randn(2, 16))
    assert sum(size == picture.numel() for size in kept) == 4


@pytest.mark.parametrize("name", FAMILIES)
def test_plain_attention_gives_the_same_answers_and_gradients(name: str) -> None:
    plain = network(name)
    changed = copy.deepcopy(plain)
    use_unscaled_attention(changed)
    assert all(isinstance(each, UnscaledAttentionProcessor) for each in changed.attn_processors.values())
    wanted, found = asked(plain), asked(changed)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(gradients(found, changed), gradients(wanted, plain), strict=True):
        torch.testing.assert_close(one, other)
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[:, 3:] = False
    masked = asked(changed, encoder_attention_mask=mask)
    assert not torch.allclose(masked, found)
    torch.testing.assert_close(masked, asked(plain, encoder_attention_mask=mask))


def gate(width: int = 16) -> GEGLU:
    torch.manual_seed(0)
    return GEGLU(width, 2 * width)


@pytest.mark.parametrize("name", FAMILIES)
def test_gate_gradients_are_the_usual_ones(name: str) -> None:
    plain = network(name)
    changed = copy.deepcopy(plain)
    use_fused_geglu_backward(changed)
    gates = [part for part in changed.modules() if isinstance(part, GEGLU)]
    assert gates
    assert all("forward" in vars(part) for part in gates)
    assert changed.state_dict().keys() == plain.state_dict().keys()
    wanted, found = asked(plain), asked(changed)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(gradients(found, changed), gradients(wanted, plain), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("autocast", [False, True])
def test_a_gate_is_compiled_in_one_piece_with_one_operation_for_its_gradient(autocast: bool) -> None:
    plain = gate()
    changed = copy.deepcopy(plain)
    use_fused_geglu_backward(changed)
    seen: list[str] = []

    def look(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    compiled = torch.compile(changed, backend=aot_autograd(fw_compiler=look), fullgraph=True)
    tokens = torch.randn(2, 5, 16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, wanted = compiled(tokens), plain(tokens)
    assert found.dtype == wanted.dtype
    close: dict[str, Any] = {"atol": 0.03, "rtol": 0.03} if autocast else {}
    torch.testing.assert_close(found, wanted, **close)
    for one, other in zip(gradients(found, changed), gradients(wanted, plain), strict=True):
        torch.testing.assert_close(one, other, **close)
    assert seen.count("calotype.geglu_backward.default") == 1
    # The bias's gradient comes from there: nothing else reads the rows to sum them.
    assert not [target for target in seen if "sum" in target]


def test_a_layer_that_does_more_than_its_weights_say_keeps_its_forward() -> None:
    class Noted(nn.Linear):
        pass

    other, without = gate(), GEGLU(16, 32, bias=False)
    other.proj = Noted(16, 64)
    for part in (other, without):
        use_fused_geglu_backward(part)
        assert "forward" not in vars(part)


@pytest.mark.parametrize("name", FAMILIES)
# From 64 on diffusers copies before it enlarges.
@pytest.mark.parametrize("count", [2, 64])
def test_no_convolution_sees_a_picture_that_lies_otherwise(name: str, count: int) -> None:
    unet = network(name)
    use_channels_last(unet)
    lies: list[bool] = []

    def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        lies.append(inputs[0].is_contiguous(memory_format=torch.channels_last))

    for part in unet.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_pre_hook(note)
    with torch.no_grad():
        asked(unet, count)
    assert len(lies) > 10
    assert all(lies)


def test_doubling_is_nearest_neighbours_with_the_same_gradient() -> None:
    picture = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    wanted = nn.functional.interpolate(picture, scale_factor=2.0, mode="nearest")
    found = doubled(picture)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    weights = torch.randn_like(wanted)
    [one] = torch.autograd.grad((found * weights).sum(), picture)
    [other] = torch.autograd.grad((wanted * weights).sum(), picture)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("shape", [(2, 32, 6, 5), (3, 32, 7)])
def test_the_norm_is_torchs_own(shape: tuple[int, ...]) -> None:
    norm = nn.GroupNorm(8, 32, eps=1e-6)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    # Far from zero, where a variance from sums loses most.
    picture = torch.randn(shape) * 3 + 20
    made = ChannelSumNorm.of(norm)
    torch.testing.assert_close(made(picture), norm(picture), atol=2e-4, rtol=1e-4)
    assert made(picture.bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert made(picture.bfloat16()).dtype == norm(picture.bfloat16()).dtype


def test_equal_numbers_become_the_bias() -> None:
    norm = nn.GroupNorm(2, 4)
    nn.init.normal_(norm.bias)
    found = ChannelSumNorm.of(norm)(torch.full((1, 4, 3, 3), 100.1))
    torch.testing.assert_close(found, norm.bias.view(1, 4, 1, 1).expand_as(found), atol=1e-2, rtol=0)


def wide_encoder() -> Any:
    torch.manual_seed(0)
    vae = AutoencoderKL(
        block_out_channels=(288,), down_block_types=("DownEncoderBlock2D",), norm_num_groups=32
    )
    return vae.encoder.eval()


@pytest.mark.parametrize("side", [8, 72])
def test_wide_attention_is_the_usual_one(side: int) -> None:
    encoder = wide_encoder()
    [attention] = encoder.mid_block.attentions
    use_vae_attention(encoder)
    assert isinstance(attention.processor, VaeAttention)
    picture = torch.randn(1, 288, side, side)
    with torch.no_grad():
        found = attention(picture, temb=None)
        attention.set_processor(attention.processor._usual)
        torch.testing.assert_close(found, attention(picture, temb=None), atol=1e-5, rtol=1e-4)
