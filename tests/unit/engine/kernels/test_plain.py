"""Without a GPU the operations are torch's own, and nobody needs Triton."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.geglu import geglu, geglu_quantized
from calotype.engine.kernels.group_norm import add_group_norm, group_norm, group_norm_concat
from calotype.engine.kernels.layer_norm import (
    add_layer_norm,
    add_layer_norm_quantized,
    layer_norm,
    layer_norm_quantized,
)
from calotype.engine.kernels.quantize import Kind, Quantized, quantize_rows
from calotype.engine.kernels.upsample import upsample_nearest2x

EPS = 1e-5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pictures(*shape: int, seed: int = 0) -> Tensor:
    return drawn(*shape, seed=seed).contiguous(memory_format=torch.channels_last)


WEIGHT, BIAS = drawn(12, seed=1), drawn(12, seed=2)


@pytest.mark.parametrize("silu", [True, False])
def test_group_norm_adds_the_shift_first(silu: bool) -> None:
    x, shift = pictures(2, 12, 5, 3), drawn(2, 12, seed=3)
    wanted = functional.group_norm(x + shift[:, :, None, None], 4, WEIGHT, BIAS, EPS)
    wanted = wanted * torch.sigmoid(wanted) if silu else wanted
    found = group_norm(x, WEIGHT, BIAS, 4, EPS, silu=silu, shift=shift)
    torch.testing.assert_close(found, wanted)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("factor", [0.25, 8.0, 1000.0])
def test_group_norms_write_e4m3_if_they_are_given_a_factor(factor: float) -> None:
    x, shift, extra = pictures(2, 12, 5, 3), drawn(2, 12, seed=3), drawn(12, seed=4)
    pairs = [
        tuple(group_norm(x, WEIGHT, BIAS, 4, EPS, silu=True, shift=shift, factor=f) for f in (factor, None)),
        tuple(
            add_group_norm(x, x, extra, WEIGHT, BIAS, 4, EPS, silu=True, factor=f)[0] for f in (factor, None)
        ),
        tuple(
            group_norm_concat(x[:, :7], x[:, 7:], WEIGHT, BIAS, 2, EPS, factor=f)[0] for f in (factor, None)
        ),
    ]
    for found, exact in pairs:
        assert found is not None
        assert found.dtype == torch.float8_e4m3fn
        assert found.is_contiguous(memory_format=torch.channels_last)
        wanted = (exact * factor).clamp(-448, 448)
        assert ((found.float() - wanted).abs() <= wanted.abs() / 16 + 2**-10).all()


def test_group_norm_of_a_pair_is_of_their_concatenation() -> None:
    a, b = pictures(2, 7, 5, 3), pictures(2, 5, 5, 3, seed=3)
    found, joined = group_norm_concat(a, b, WEIGHT, BIAS, 2, EPS)
    assert torch.equal(joined, torch.cat([a, b], 1))
    assert joined.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, functional.group_norm(torch.cat([a, b], 1), 2, WEIGHT, BIAS, EPS))


def test_group_norm_of_a_sum_hands_the_sum_on() -> None:
    x, addend, extra = pictures(2, 12, 5, 3), pictures(2, 12, 5, 3, seed=3), drawn(12, seed=4)
    found, total = add_group_norm(x, addend, extra, WEIGHT, BIAS, 4, EPS)
    torch.testing.assert_close(total, x + addend + extra[:, None, None])
    torch.testing.assert_close(found, functional.group_norm(total, 4, WEIGHT, BIAS, EPS))
    a, b = x.split([7, 5], 1)
    _, joined = group_norm_concat(a, b, WEIGHT, BIAS, 2, EPS, addend=addend[:, :7], extra=extra[:7])
    torch.testing.assert_close(joined, torch.cat([total[:, :7], b], 1))


def test_weights_may_have_more_digits_than_the_pictures() -> None:
    x = pictures(2, 12, 5, 3).bfloat16()
    assert group_norm(x, WEIGHT, BIAS, 4, EPS).dtype == torch.bfloat16
    assert layer_norm(x.transpose(1, 3), WEIGHT, BIAS, EPS).dtype == torch.bfloat16


def test_layer_norm_of_a_sum_hands_the_sum_on() -> None:
    x, residual, bias = drawn(3, 4, 12), drawn(3, 4, 12, seed=3), drawn(12, seed=4)
    found, total = add_layer_norm(x, residual, WEIGHT, BIAS, EPS, bias_of_residual=bias)
    torch.testing.assert_close(total, x + residual + bias)
    torch.testing.assert_close(found, functional.layer_norm(total, (12,), WEIGHT, BIAS, EPS))
    torch.testing.assert_close(found, layer_norm(total, WEIGHT, BIAS, EPS))


def test_geglu_gates_with_the_second_half() -> None:
    x = drawn(3, 4, 12)
    torch.testing.assert_close(geglu(x), x[..., :6] * functional.gelu(x[..., 6:]))


def test_upsampling_repeats_pixels() -> None:
    x = pictures(2, 3, 4, 5)
    found = upsample_nearest2x(x)
    assert torch.equal(found, x.repeat_interleave(2, 2).repeat_interleave(2, 3))
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.5 / 127), ("fp8", 1 / 16)])
def test_eight_bits_are_near(kind: Kind, error: float) -> None:
    """int8 errs by half a step of the largest number's 127, fp8 by a sixteenth of each number at most."""
    x, residual = 100 * drawn(3, 4, 12), 100 * drawn(3, 4, 12, seed=3)
    normed, summed = layer_norm(x, WEIGHT, BIAS, EPS), add_layer_norm(x, residual, WEIGHT, BIAS, EPS)
    added, total = add_layer_norm_quantized(x, residual, WEIGHT, BIAS, EPS, kind)
    assert torch.equal(total, summed[1])
    pairs = [
        (quantize_rows(x, kind), x),
        (layer_norm_quantized(x, WEIGHT, BIAS, EPS, kind), normed),
        (added, summed[0]),
        (geglu_quantized(x, kind), geglu(x)),
    ]
    for found, wanted in pairs:
        assert found.scale.shape == (3, 4, 1)
        away = (found.values.float() * found.scale - wanted).abs()
        assert (away <= 1.01 * error * wanted.abs().amax(-1, keepdim=True)).all()


@pytest.mark.parametrize(("kind", "limit"), [("int8", 127.0), ("fp8", 448.0)])
def test_a_known_scale_is_every_rows_and_cuts_off_what_is_beyond(kind: Kind, limit: float) -> None:
    x = 100 * drawn(3, 4, 12)
    normed = layer_norm(x, WEIGHT, BIAS, EPS)
    scale = 0.5 * float(normed.abs().max()) / limit
    found = layer_norm_quantized(x, WEIGHT, BIAS, EPS, kind, scale=scale)
    assert torch.equal(found.scale, torch.full((3, 4, 1), scale))
    away = (found.values.float() * scale - normed.clamp(-limit * scale, limit * scale)).abs()
    assert (away <= (0.51 * scale if kind == "int8" else normed.abs() / 15 + scale)).all()
    assert found.values.float().abs().max() == limit


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_zeros_stay_zeros(kind: Kind) -> None:
    found: Quantized = quantize_rows(torch.zeros(2, 5), kind)
    assert (found.values.float() == 0).all()
    assert found.scale.isfinite().all()


@pytest.mark.parametrize(
    "run",
    [
        lambda x: group_norm(x, WEIGHT, BIAS, 4, EPS, silu=True),
        lambda x: layer_norm(x.transpose(1, 3), WEIGHT, BIAS, EPS),
        lambda x: geglu(x.transpose(1, 3)),
        upsample_nearest2x,
    ],
)
def test_gradients_flow_where_they_are_asked_for(run: Callable[[Tensor], Tensor]) -> None:
    x = pictures(2, 12, 3, 3).requires_grad_()
    run(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_what_takes_seconds_is_imported_only_when_needed() -> None:
    """Triton where there is no GPU, and diffusers where no model is built."""
    said = (
        "import sys, torch, calotype.engine.load; from calotype.engine.kernels import "
        "dispatch, geglu, group_norm, layer_norm, quantize, upsample; "
        "geglu.geglu(torch.zeros(2, 4)); "
        "found = {'triton', 'diffusers', 'transformers'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", said], check=True, timeout=300)
