"""One pass gives the gradients of a gate and of the bias before it that torch gives in two."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from calotype.engine.kernels.geglu_backward import geglu_backward
from tests.unit.engine.kernels.subprocess_cases import interpret

# The interpreter has six programs: more tiles than that are walked over.
CASES: dict[str, dict[str, Any]] = {
    "whole tiles": {"shape": [64, 256], "dtype": "fp32"},
    "a row that is left over": {"shape": [5, 21, 256], "dtype": "fp32"},
    "one row": {"shape": [1, 512], "dtype": "fp32"},
    "two blocks of columns": {"shape": [3, 17, 512], "dtype": "bf16"},
    "narrower blocks": {"shape": [50, 384], "dtype": "bf16"},
    "a width of nothing": {"shape": [33, 200], "dtype": "fp32"},
    "a width of nothing, in bf16": {"shape": [29, 14], "dtype": "bf16"},
    "more blocks than programs": {"shape": [19, 2048], "dtype": "bf16"},
    "far from zero": {"shape": [40, 256], "dtype": "fp32", "spread": 6.0},
    "fp16": {"shape": [40, 256], "dtype": "fp16", "bias": "fp16"},
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    cases = [{"operation": "geglu_backward", **case} for case in CASES.values()]
    return dict(zip(CASES, interpret(cases), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_is_torchs_up_to_rounding(found: dict[str, dict[str, Any]], name: str) -> None:
    # Of the largest number.
    assert found[name]["error"] < 1e-6
    assert found[name]["bias"] < 1e-6
    assert found[name]["dtype"]


@pytest.mark.parametrize("name", CASES)
def test_a_row_does_not_depend_on_the_others(found: dict[str, dict[str, Any]], name: str) -> None:
    assert found[name]["alone"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_a_gpu_it_is_the_same(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    gradient, projected = (torch.randn(3, 7, size, generator=generator).to(dtype) for size in (6, 12))
    bias = torch.randn(12, generator=generator)
    exact, exact_bias = (each.double().requires_grad_() for each in (projected, bias))
    value, gate = (exact + exact_bias).chunk(2, -1)
    wanted = torch.autograd.grad(value * functional.gelu(gate), (exact, exact_bias), gradient.double())
    found, of_bias = geglu_backward(gradient, projected, bias)
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted[0].to(dtype))
    torch.testing.assert_close(of_bias, wanted[1].float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compilers_are_told_what_comes_out(dtype: torch.dtype) -> None:
    # Neither is laid out row by row, which what comes out always is.
    gradient = torch.randn(5, 3, 6).to(dtype).transpose(0, 1)
    projected = torch.randn(12, 3, 5).to(dtype).permute(1, 2, 0)
    torch.library.opcheck(geglu_backward, (gradient, projected, torch.randn(12)))
