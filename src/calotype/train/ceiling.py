"""The most arithmetic a device reaches: large matrix products by the clock. Knows nothing of what is trained.

A burst of a fraction of a second, so a device that slows down when it gets hot or draws too much power does
not keep it up all day: a share of it is, if anything, too low.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

_log = logging.getLogger(__name__)

_SIDE = 8192
_REPEATS, _ROUNDS = 10, 3


@cache
def measured_ceiling(device: torch.device, dtype: torch.dtype) -> float | None:
    """TFLOP/s of a GPU, measured once in a process; None on the CPU, and where there is no memory for it."""
    if device.type != "cuda":
        return None
    try:
        return product_tflops(*_matrices(device, dtype), lambda: torch.cuda.synchronize(device))
    except torch.OutOfMemoryError:
        _log.warning("no room to measure the device's ceiling; say trainer.ceiling_tflops to see MFU")
        return None
    finally:
        torch.cuda.empty_cache()


def _matrices(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of noise, since products of zeros draw less power and run faster; from a generator of their own."""
    drawn = torch.randn(2, _SIDE, _SIDE, device=device, dtype=dtype, generator=torch.Generator(device))
    return drawn[0], drawn[1]


def product_tflops(
    one: Tensor, other: Tensor, finish: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> float:
    """TFLOP/s of the product of two matrices, the best of a few rounds; `finish` waits for the device."""
    rows, inner, columns = *one.shape, other.shape[1]
    out = one.new_empty(rows, columns)
    best = math.inf
    for round_number in range(_ROUNDS + 1):
        finish()
        started = clock()
        for _ in range(_REPEATS):
            torch.mm(one, other, out=out)
        finish()
        seconds = clock() - started
        # The first also loads the kernels.
        if round_number:
            best = min(best, seconds)
    return 2 * rows * inner * columns * _REPEATS / best / 1e12
