"""Matrix products on a CPU by oneDNN, where torch would ask MKL. Knows nothing of networks."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from calotype.core.hardware import read_family

_FULL_WIDTH = ("AuthenticAMD", 26)
"""Whose processors have AVX-512 without MKL's using it, and since when all 512 bits at once: Zen 5."""


@cache
def worth_it() -> bool:
    """Whether oneDNN is twice as fast on this processor: where MKL leaves half of it idle."""
    vendor, family = read_family()
    faster = vendor == _FULL_WIDTH[0] and family >= _FULL_WIDTH[1]
    return faster and available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def available() -> bool:
    """Whether this torch has oneDNN's products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype != torch.float32:
        return functional.linear(x, weight, bias)  # oneDNN's already
    made = torch.ops.mkldnn._linear_pointwise(x.reshape(-1, x.shape[-1]), weight, bias, "none", [], "")
    return made.view(*x.shape[:-1], len(weight))
