"""A sum that is left to a norm is the sum, whichever norm puts it together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from calotype.engine.modules import ops
from calotype.engine.modules.ops import DeferredSum
from calotype.engine.passes import fused_norms

WAYS = (ops, fused_norms)
NORM = nn.GroupNorm(4, 12)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pending(channels: int) -> dict[str, tuple[DeferredSum, Tensor]]:
    """Sums, and what they come to."""
    x, addend, bias = drawn(2, channels, 5, 3), drawn(2, channels, 5, 3, seed=1), drawn(channels, seed=2)
    each = bias[:, None, None]
    return {
        "nothing to add": (DeferredSum(x), x),
        "a bias": (DeferredSum(x, bias=bias), x + each),
        "another picture": (DeferredSum(x, addend), x + addend),
        "both": (DeferredSum(x, addend, bias), x + addend + each),
    }


@pytest.mark.parametrize("name", pending(12))
@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_a_norm_puts_the_sum_together_and_hands_it_on(way: Any, name: str) -> None:
    given, wanted = pending(12)[name]
    shift = drawn(2, 12, seed=3)
    for moved in (None, shift):
        normal, whole = way.group_norm(given, NORM, silu=True, shift=moved)
        torch.testing.assert_close(whole, wanted)
        inside = wanted if moved is None else wanted + moved[:, :, None, None]
        torch.testing.assert_close(normal, functional.silu(NORM(inside)))


@pytest.mark.parametrize("name", pending(7))
@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_a_sum_is_joined_with_a_skip(way: Any, name: str) -> None:
    given, wanted = pending(7)[name]
    skip = drawn(2, 5, 5, 3, seed=4)
    normal, both = way.group_norm_concat(given, skip, NORM)
    torch.testing.assert_close(both, torch.cat([wanted, skip], 1))
    torch.testing.assert_close(normal, functional.silu(NORM(both)))


@pytest.mark.parametrize("name", pending(12))
def test_a_sum_is_settled_for_who_does_not_normalise(name: str) -> None:
    given, wanted = pending(12)[name]
    torch.testing.assert_close(given.materialize(ops.add), wanted)
