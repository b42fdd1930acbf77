"""What a transformer's layers add to their tokens is added by the matrix product that finds it.

A norm that does it reads two tensors and writes the sum besides what it is for; a product that adds to what
is there reads one more behind its arithmetic, which takes longer than reading. Biases are not added at all:
norms are told what is owed, a number for each channel, until the last tokens are handed on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from calotype.engine.kernels import layer_norm as layer
from calotype.engine.network.operations import Added
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.eight_bits import UNCOMPILED
from calotype.engine.passes.fused_norms import FUSED_NORMS
from calotype.engine.passes.own_forward import nothing_more


@dataclass(frozen=True)
class _Owed:
    before: Tensor | None
    bias: Tensor
    total: Tensor

    def refresh(self) -> None:
        self.total.copy_(_sum(self.before, self.bias))


class Owing:
    """Sums of biases. Each is made once: inside a recording they would be hundreds of tiny kernels."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], _Owed] = {}

    def more(self, owed: Tensor | None, bias: Tensor | None) -> Tensor | None:
        if bias is None:
            return owed
        # A bias stays where it is as long as the model lives, and the entry keeps both there.
        key = (0 if owed is None else owed.data_ptr(), bias.data_ptr())
        if key not in self._made:
            self._made[key] = _Owed(owed, bias, _sum(owed, bias))
        return self._made[key].total

    @torch.inference_mode()
    def refresh(self) -> None:
        """Again, in place, in the order they build on each other: biases have changed."""
        for one in self._made.values():
            one.refresh()


def _sum(owed: Tensor | None, bias: Tensor) -> Tensor:
    """In single precision: it is added to numbers that are rounded once."""
    return bias.float().clone() if owed is None else owed + bias.float()


def layer_norm(
    x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    assert addend is None
    return layer.layer_norm(x, norm.weight, norm.bias, norm.eps, extra=bias), x


def _apply(assembly: Assembly) -> None:
    owing = Owing()

    def onto(x: Tensor, seen: Tensor, weight: Tensor, bias: Tensor | None, owed: Tensor | None) -> Added:
        # In place: nobody else has these tokens, and otherwise torch would copy them first.
        x.view(-1, x.shape[-1]).addmm_(seen.flatten(0, 1), weight.T)
        return x, None, owing.more(owed, bias)

    assembly.on_change.append(owing.refresh)
    assembly.operations = replace(assembly.operations, onto=onto, layer_norm=layer_norm)


# After the norms of others, which would write sums down.
SUMS_IN_PRODUCTS = Pass(
    "sums_in_products",
    "rounding",
    nothing_more,
    _apply,
    after=(FUSED_NORMS.name,),
    excludes=("int8", "fp8", "int8_static", *UNCOMPILED),
)
