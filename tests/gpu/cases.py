"""What is measured of a kernel: a case is one of them at one shape. Knows nothing of kernels or clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.gpu.timing import CALLS_PER_GRAPH

EPS = 1e-5
# Beyond the rounding of the result's own dtype, of numbers around one.
TOLERANCE = 2e-4


@dataclass(frozen=True)
class Case:
    """One kernel at one shape; every input is a batch."""

    name: str
    inputs: tuple[Tensor, ...]
    ours: Callable[..., Any]
    eager: Callable[..., Any]
    num_bytes: int
    """What has to be read and written at least."""
    reference: Callable[..., Any] | None = None
    """What fp32 inputs are to give; `eager` if not said."""
    exactly: bool = False
    """Whether `eager` has to give the same to the bit."""
    tolerance: float = TOLERANCE
    same_alone: bool = True
    """Whether a picture has to be the same to the bit alone and in the batch."""
    operations: int = 0
    """Multiplications and additions, where they are what counts."""
    layer: str = ""
    """A convolution that other cases do as well."""
    times: int = 0
    """In an evaluation of SDXL."""
    calls: int = CALLS_PER_GRAPH


class Bench:
    """Draws inputs where the cases run; on a CPU, small ones."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.small = device.type == "cpu"

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype) + 0.5

    def pictures(self, n: int, channels: int, side: int) -> Tensor:
        side = max(2, side // 16) if self.small else side
        return self.numbers(n, channels, side, side).contiguous(memory_format=torch.channels_last)

    def rows(self, n: int, side: int, width: int) -> Tensor:
        side = max(2, side // 16) if self.small else side
        return self.numbers(n, side * side, width)

    def parameters(self, width: int) -> tuple[Tensor, Tensor]:
        return self.numbers(width), self.numbers(width)


def size(*tensors: Tensor) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)
