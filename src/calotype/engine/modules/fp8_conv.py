"""3×3 convolutions in e4m3: weights quantised once, pictures as the norm before wrote them.

A layer's pictures come multiplied by a factor of its own, which its weight's scales take back. A picture that
does not come in e4m3 is rounded here. Knows nothing of networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from calotype.engine.kernels.fp8_conv import E4M3, Weight, fp8_conv, quantize_weight, to_e4m3


class Fp8Conv:
    """`Operations.convolution` for layers with a factor; others are done as they were."""

    def __init__(
        self, factors: Mapping[nn.Conv2d, float], dtype: torch.dtype, otherwise: Callable[..., Tensor]
    ) -> None:
        self._factors, self._dtype, self._otherwise = factors, dtype, otherwise
        self._weights: dict[nn.Conv2d, Weight] = {}

    def __call__(self, x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
        factor = self._factors.get(layer)
        if factor is None:
            return self._otherwise(x, layer, bias)
        if layer not in self._weights:
            self._weights[layer] = quantize_weight(layer.weight, factor)
        values = x if x.dtype == E4M3 else to_e4m3(x, factor)
        return fp8_conv(values, self._weights[layer], bias, self._dtype)

    @torch.inference_mode()
    def refresh(self) -> None:
        """Quantise all weights again, in place: they have changed, and graphs know where they lie."""
        for layer, known in self._weights.items():
            made = quantize_weight(layer.weight, self._factors[layer])
            known.values.copy_(made.values)
            known.scale.copy_(made.scale)


def supports(layer: nn.Conv2d) -> bool:
    """Whether it is a layer of the kind that the kernel knows."""
    plain = (layer.kernel_size, layer.stride, layer.padding) == ((3, 3), (1, 1), (1, 1))
    return plain and layer.groups == 1 and layer.dilation == (1, 1)
