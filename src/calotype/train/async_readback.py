"""Numbers from the device to the host that wait for nothing but themselves. Knows nothing of training."""

from __future__ import annotations

import torch
from torch import Tensor


class Readback:
    """A few numbers on their way to the host, while the device goes on with what is asked of it next."""

    def __init__(self, numbers: Tensor) -> None:
        on_gpu = numbers.is_cuda
        self._host = torch.empty_like(numbers, device="cpu", pin_memory=on_gpu)
        self._host.copy_(numbers, non_blocking=on_gpu)
        self._arrived = torch.cuda.Event() if on_gpu else None
        if self._arrived:
            self._arrived.record()

    def wait(self) -> list[float]:
        """The numbers, once they are there."""
        if self._arrived:
            self._arrived.synchronize()
        return [float(number) for number in self._host]
