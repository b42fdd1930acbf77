"""Products and convolutions on a CPU by oneDNN, asked by ourselves. Knows nothing of networks."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from calotype.core.hardware import read_family

_FULL_WIDTH = ("AuthenticAMD", 26)
"""Whose processors have AVX-512 without MKL's using it, and since when all 512 bits at once: Zen 5."""
_ASKED = ("_linear_pointwise", "_convolution_pointwise", "_reorder_convolution_weight")
_EACH = (1, 1)
_NOWHERE = (0, 0)


@cache
def is_faster_here() -> bool:
    """Whether oneDNN is twice as fast on this processor: where MKL leaves half of it idle."""
    vendor, family = read_family()
    faster = vendor == _FULL_WIDTH[0] and family >= _FULL_WIDTH[1]
    return faster and available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def available() -> bool:
    """Whether this torch has oneDNN's products."""
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, each) for each in _ASKED)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype != torch.float32:
        return functional.linear(x, weight, bias)  # oneDNN's already
    made = torch.ops.mkldnn._linear_pointwise(x.reshape(-1, x.shape[-1]), weight, bias, "none", [], "")
    return made.view(*x.shape[:-1], len(weight))


def convolution(
    x: Tensor,
    kernels: Tensor,
    bias: Tensor | None = None,
    padding: tuple[int, ...] | str = _NOWHERE,
    stride: tuple[int, ...] = _EACH,
    parts: int = 1,
) -> Tensor:
    """`parts` of the channels each have kernels of their own."""
    return torch.ops.mkldnn._convolution_pointwise(
        x, kernels, bias, padding, stride, _EACH, parts, "none", [], ""
    )


def pack_weight(
    kernels: Tensor,
    padding: tuple[int, ...] | str = _NOWHERE,
    stride: tuple[int, ...] = _EACH,
    parts: int = 1,
) -> Tensor:
    """Kernels in the order in which oneDNN reads them. Nobody else can read that."""
    return torch.ops.mkldnn._reorder_convolution_weight(kernels, padding, stride, _EACH, parts)


def concat_weights(x: Tensor, kernels: Tensor, parts: int) -> Tensor:
    """Products of parts of the last dimension, each with a matrix of its own.

    `x` is (pictures, rows, columns, parts × in), `kernels` are (parts × out, in, 1, 1).
    """
    return convolution(x.permute(0, 3, 1, 2), kernels, parts=parts).permute(0, 2, 3, 1)
