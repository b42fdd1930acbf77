"""Convolutions in e4m3: which layers, how near, with a LoRA and without, and where they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from calotype.core.errors import NotFoundError
from calotype.engine.kernels.fp8_conv import E4M3, to_e4m3
from calotype.engine.modules import ops
from calotype.engine.modules.fp8_conv import Fp8Conv, supports
from calotype.engine.modules.ops import DeferredSum
from calotype.engine.passes import NetworkBuilder
from calotype.engine.passes.fp8_conv import FP8_CONV, scale_after
from calotype.engine.presets import build_preset
from tests.engines import latents_of, relative, small_engine
from tests.unit.engine.modules.test_unet import far

PASSES = "passes:own_forward+channels_last+fused_norms+fp8_convolutions"
WITH_PRODUCTS = PASSES.replace("+fp8_", "+fused_geglu+fp8+fp8_")
KNOBS: dict[str, Any] = {"width": 64, "height": 64, "steps": 2, "cfg": 2.0}


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def layer_of(inputs: int, out: int) -> nn.Conv2d:
    made = nn.Conv2d(inputs, out, 3, padding=1)
    with torch.no_grad():
        made.weight.copy_(numbers(out, inputs, 3, 3) / (9 * inputs) ** 0.5)
    return made


def test_a_layer_with_a_factor_comes_near_and_another_is_done_as_it_was() -> None:
    known, other = layer_of(32, 16), layer_of(32, 16)
    run = Fp8Conv({known: 4.0}, torch.float32, ops.convolution)
    x, bias = functional.silu(numbers(2, 32, 6, 5)), numbers(16)
    assert torch.equal(run(x, other, bias), ops.convolution(x, other, bias))
    assert 1e-4 < far(run(x, known, bias), ops.convolution(x, known, bias)) < 0.05
    assert torch.equal(run(to_e4m3(x, 4.0), known, bias), run(x, known, bias))


def test_changed_weights_are_quantised_again_where_they_were() -> None:
    layer, x = layer_of(32, 16), functional.silu(numbers(2, 32, 6, 5))
    run = Fp8Conv({layer: 4.0}, torch.float32, ops.convolution)
    with torch.inference_mode():
        before = run(x, layer, None)
        places = [each.data_ptr() for each in run._weights[layer]]
    with torch.no_grad():
        layer.weight.mul_(3)
    assert torch.equal(run(x, layer, None), before)
    run.refresh()
    assert far(run(x, layer, None), 3 * before) < 0.01
    assert [each.data_ptr() for each in run._weights[layer]] == places


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(8, 8, 3, padding=1, stride=2), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3)]
)
def test_other_kinds_of_layers_are_left_alone(layer: nn.Conv2d) -> None:
    assert not supports(layer)
    assert supports(layer_of(8, 8))


@pytest.mark.parametrize(
    ("weight", "bias", "factor"), [(1.0, 0.0, 4.0), (-0.1, 0.0, 64.0), (0.1, 100.0, 4.0), (8.0, 0.0, 0.5)]
)
def test_a_factor_leaves_room_for_the_norms_numbers(weight: float, bias: float, factor: float) -> None:
    norm = nn.GroupNorm(2, 8)
    with torch.no_grad():
        norm.weight[3], norm.bias[3] = weight, bias
        norm.weight[:3], norm.weight[4:] = 0.01, 0.01
    assert scale_after(norm) == factor


def test_the_norms_of_residual_blocks_write_e4m3_and_no_others() -> None:
    model = small_engine("sdxl").model
    assembly = NetworkBuilder(model)
    FP8_CONV.apply(assembly)
    do, unet = assembly.operations, model.unet
    block = unet.up_blocks[0].resnets[0]
    x = numbers(2, block.norm2.num_channels, 4, 4)
    shift = numbers(2, block.norm2.num_channels)
    assert do.group_norm(DeferredSum(x), block.norm2, silu=True, shift=shift)[0].dtype == E4M3
    wide = numbers(2, block.norm1.num_channels, 4, 4)
    joined, whole = do.joined_group_norm(DeferredSum(wide[:, :32]), wide[:, 32:], block.norm1)
    assert joined.dtype == E4M3
    assert torch.equal(whole, wide)
    for norm in (unet.conv_norm_out, unet.mid_block.attentions[0].norm):
        picture = numbers(2, norm.num_channels, 4, 4)
        assert do.group_norm(DeferredSum(picture), norm, silu=False)[0].dtype == torch.float32
    resized = (unet.conv_in, unet.conv_out, unet.down_blocks[0].downsamplers[0].conv)
    for layer in (*resized, unet.up_blocks[0].upsamplers[0].conv):
        picture = numbers(2, layer.in_channels, 8, 8)
        assert torch.equal(do.convolution(picture, layer, None), ops.convolution(picture, layer, None))


@pytest.mark.parametrize(("passes", "most"), [(PASSES, 0.05), (WITH_PRODUCTS, 0.1)])
def test_a_picture_comes_near_the_exact_one(passes: str, most: float) -> None:
    exact, found = (latents_of(small_engine("sdxl", preset=p), **KNOBS) for p in ("baseline", passes))
    assert 1e-4 < relative(found, exact) < most


def test_a_lora_of_convolutions_is_followed_there_and_back(tmp_path: Path) -> None:
    (tmp_path / "loras").mkdir()
    plain, found = (small_engine("sdxl", preset=p, models_folder=tmp_path) for p in ("baseline", PASSES))
    tensors = {}
    for layer in ("mid_block.resnets.0.conv1", "up_blocks.1.resnets.1.conv2"):
        out, inputs = plain.model.unet.get_submodule(layer).weight.shape[:2]
        tensors[f"unet.{layer}.lora_A.weight"] = numbers(2, inputs, 3, 3)
        tensors[f"unet.{layer}.lora_B.weight"] = numbers(out, 2, 1, 1)
    save_file(tensors, tmp_path / "loras" / "one.safetensors")
    asked = ({**KNOBS}, {**KNOBS, "loras": [{"name": "one"}]})
    wanted = [latents_of(plain, **each) for each in asked]
    apart = relative(wanted[0], wanted[1])
    for each, exact in zip((*asked, *asked), (*wanted, *wanted), strict=True):
        assert relative(latents_of(found, **each), exact) < apart / 3


class Hopper:
    """A device's answers, where there is none."""

    type = "cuda"


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (torch.float32, "load the model with --precision bf16 or fp16"),
        (torch.float16, None),
        (torch.bfloat16, None),
    ],
)
def test_it_says_what_a_model_lacks(
    dtype: torch.dtype, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = small_engine("sdxl").model
    monkeypatch.setattr(model, "device", Hopper())
    monkeypatch.setattr(model, "dtype", dtype)
    said = FP8_CONV.missing(model)
    assert (said is None) == (words is None)
    assert (words or "") in (said or "")


@pytest.mark.parametrize(("runs", "replaced"), [(True, True), (False, False)])
def test_a_gpu_before_hopper_keeps_its_convolutions(
    runs: bool, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = small_engine("sdxl").model
    monkeypatch.setattr(model, "device", Hopper())
    monkeypatch.setattr("calotype.engine.passes.fp8_conv.runs_kernel_on", lambda _: runs)
    assembly = NetworkBuilder(model)
    usual = assembly.operations
    FP8_CONV.apply(assembly)
    assert (assembly.operations.convolution is not usual.convolution) == replaced
    assert (assembly.resident_bytes > 0) == replaced


def test_it_builds_on_norms_that_are_fused() -> None:
    with pytest.raises(NotFoundError, match="'fp8_convolutions' builds on 'fused_norms'"):
        build_preset(small_engine("sdxl").model, "passes:own_forward+channels_last+fp8_convolutions")
