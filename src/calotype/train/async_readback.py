"""Copy numbers from the device to the host asynchronously."""

from __future__ import annotations

import torch
from torch import Tensor


class Readback:
    """An asynchronous copy of a few numbers to the host, while the device goes on with later work."""

    def __init__(self, numbers: Tensor) -> None:
        on_gpu = numbers.is_cuda
        self._host = torch.empty_like(numbers, device="cpu", pin_memory=on_gpu)
        self._host.copy_(numbers, non_blocking=on_gpu)
        self._arrived = torch.cuda.Event() if on_gpu else None
        if self._arrived:
            self._arrived.record()

    def wait(self) -> list[float]:
        """Wait for the copy and return the numbers."""
        if self._arrived:
            self._arrived.synchronize()
        return [float(number) for number in self._host]
