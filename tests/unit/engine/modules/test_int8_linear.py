"""Products in eight bits come near the exact ones, and follow weights that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from calotype.engine.kernels.quantize import Kind, quantize_rows
from calotype.engine.modules.int8_linear import Int8Linear
from tests.engines import latents_of, relative, small_engine
from tests.unit.engine.modules.test_unet import far

KINDS: tuple[Kind, ...] = ("int8", "fp8")
ERROR = {"int8": 0.02, "fp8": 0.05}
"""Of a product, relative to its largest number: half a step in 127, or three bits of mantissa."""


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_comes_near_the_exact_one(kind: Kind) -> None:
    x, weight, bias = numbers(2, 20, 64), numbers(48, 64), numbers(48)
    # A row and an output far larger than the others must not cost the others their precision.
    x[0, 3] *= 1000
    weight[5] *= 1000
    found, wanted = Int8Linear(kind, torch.float32)(x, weight, bias), linear(x, weight, bias)
    assert found.shape == wanted.shape
    row = wanted[1, 7]
    assert (found[1, 7, 6:] - row[6:]).abs().max() < ERROR[kind] * row[6:].abs().max()
    assert 1e-6 < far(found, wanted) < ERROR[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_eight_bits_already_is_taken_as_it_is(kind: Kind) -> None:
    x, weight = numbers(1, 30, 32), numbers(16, 32)
    product = Int8Linear(kind, torch.float32)
    assert torch.equal(product(quantize_rows(x, kind), weight, None), product(x, weight, None))


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_are_multiplied_as_many_are(kind: Kind) -> None:
    x, weight = numbers(40, 32), numbers(16, 32)
    product = Int8Linear(kind, torch.float32)
    assert torch.equal(product(x[:3], weight, None), product(x, weight, None)[:3])


def test_changed_weights_are_quantised_again_where_they_were() -> None:
    x, weight = numbers(1, 30, 32), numbers(16, 32)
    product = Int8Linear("int8", torch.float32)
    before = product(x, weight, None)
    weight.mul_(3)
    assert torch.equal(product(x, weight, None), before)
    product.refresh()
    assert far(product(x, weight, None), linear(x, weight)) < ERROR["int8"]


@pytest.mark.parametrize("preset", KINDS)
def test_a_preset_in_eight_bits_comes_near_the_picture_of_the_fast_one(preset: str) -> None:
    knobs: dict[str, Any] = {"width": 64, "height": 64, "steps": 4, "cfg": 2.0}
    fast, found = (latents_of(small_engine("sdxl", preset=p), **knobs) for p in ("fast", preset))
    assert 1e-5 < relative(found, fast) < 0.1


def test_a_preset_in_eight_bits_follows_a_lora(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    layer = "mid_block.attentions.0.transformer_blocks.0.ff.net.0.proj"
    (tmp_path / "loras").mkdir()
    plain, found = (small_engine("sdxl", preset=p, models_folder=tmp_path) for p in ("baseline", "int8"))
    out, inputs = plain.model.unet.get_submodule(layer).weight.shape
    tensors = {
        f"unet.{layer}.lora_A.weight": numbers(2, inputs),
        f"unet.{layer}.lora_B.weight": numbers(out, 2),
    }
    save_file(tensors, tmp_path / "loras" / "one.safetensors")
    knobs: dict[str, Any] = {"width": 64, "height": 64, "steps": 2, "cfg": 1.0}
    asked = ({**knobs}, {**knobs, "loras": [{"name": "one"}]})
    wanted = [latents_of(plain, **each) for each in asked]
    apart = relative(wanted[0], wanted[1])
    for each, exact in zip((*asked, *asked), (*wanted, *wanted), strict=True):
        assert relative(latents_of(found, **each), exact) < apart / 3
