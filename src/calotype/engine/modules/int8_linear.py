"""Matrix products in eight bits: weights quantised once, activations row by row as they come.

Each row of an activation and each row of a weight has a scale of its own, so one large number spoils one row.
What already comes in eight bits, from a norm or a gate that wrote it so, is taken as it is. If its channels
were divided by something, the weight's columns are multiplied by that. Knows nothing of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from calotype.engine.kernels.dequantize import dequantize
from calotype.engine.kernels.int8_matmul import int8_matmul
from calotype.engine.kernels.quantize import Kind, Quantized, quantize_rows


@dataclass(frozen=True)
class _Weight:
    plain: Tensor
    factors: Tensor | None
    quantised: Quantized


class Int8Linear:
    """`Operations.linear` in eight bits."""

    def __init__(
        self, kind: Kind, dtype: torch.dtype, divided: Sequence[tuple[nn.Linear, Tensor]] = ()
    ) -> None:
        """`divided` are layers whose inputs come with each channel divided by a number of its own."""
        self._kind: Kind = kind
        self._dtype = dtype
        self._divided = divided
        self._weights: dict[int, _Weight] = {}

    def __call__(self, x: Tensor | Quantized, weight: Tensor, bias: Tensor | None) -> Tensor:
        given = x.values if isinstance(x, Quantized) else x
        quantised = x if isinstance(x, Quantized) else quantize_rows(x, self._kind)
        rows = Quantized(quantised.values.flatten(0, -2), quantised.scale.flatten(0, -2))
        product = _product(rows, self._weight(weight), bias, self._dtype)
        return product.unflatten(0, given.shape[:-1])

    @torch.inference_mode()
    def refresh(self) -> None:
        """Quantise all weights again, in place: they have changed, and graphs know where they lie."""
        for known in self._weights.values():
            made = self._quantised(known.plain, known.factors)
            known.quantised.values.copy_(made.values)
            known.quantised.scale.copy_(made.scale)

    def _weight(self, weight: Tensor) -> Quantized:
        # A weight stays where it is as long as the model lives, and the entry keeps it there.
        key = weight.data_ptr()
        if key not in self._weights:
            # Looked up now and not before: weights may have been joined since. They begin with the first's.
            factors = next((by for layer, by in self._divided if layer.weight.data_ptr() == key), None)
            self._weights[key] = _Weight(weight, factors, self._quantised(weight, factors))
        return self._weights[key].quantised

    def _quantised(self, weight: Tensor, factors: Tensor | None) -> Quantized:
        return quantize_rows(weight if factors is None else weight.float() * factors, self._kind)


def _product(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    if x.values.dtype == torch.int8:
        return int8_matmul(x, weight, bias, dtype)
    if x.values.is_cuda:
        return torch._scaled_mm(
            x.values,
            weight.values.T,
            scale_a=x.scale,
            scale_b=weight.scale.T,
            bias=bias,
            out_dtype=dtype,
            # Sums keep fewer bits than fp32, and still more than the products have. A quarter faster.
            use_fast_accum=True,
        )
    # A CPU has no product of such numbers; this is what a GPU's comes to.
    return dequantize(x.values.float() @ weight.values.float().T, x.scale, weight.scale, bias, dtype)
