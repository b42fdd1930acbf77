"""How long things take on a device, and how far ahead of it they are asked for. Knows nothing of pictures.

A GPU does things after they were asked for; who measures must not make it wait.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def times_on(device: torch.device) -> CpuTimes | GpuTimes:
    """The times of one kind of thing on a device."""
    return GpuTimes() if device.type == "cuda" else CpuTimes()


class CpuTimes:
    """How long things take where nothing goes on by itself."""

    last_s = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.last_s = time.perf_counter() - started

    def wait_for_all_but_the_last(self) -> None:
        """There is nothing to wait for."""

    def fetched(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: tensor


class GpuTimes:
    """How long things took that the device does after they were asked for."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self._under_way: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def timed(self) -> Iterator[None]:
        while self._under_way and self._under_way[0][1].query():
            self._over()
        begins, ends = _event(), _event()
        begins.record()
        yield
        ends.record()
        self._under_way.append((begins, ends))

    def wait_for_all_but_the_last(self) -> None:
        while len(self._under_way) > 1:
            self._under_way[0][1].synchronize()
            self._over()

    def fetched(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """A copy in main memory, made when the device comes to it."""
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor, non_blocking=True)
        made = _event()
        made.record()

        def wait() -> torch.Tensor:
            made.synchronize()
            return copy

        return wait

    def _over(self) -> None:
        begins, ends = self._under_way.popleft()
        self.last_s = begins.elapsed_time(ends) / 1000


def _event() -> torch.cuda.Event:
    # Blocking ones leave the processor to others while somebody waits.
    return torch.cuda.Event(enable_timing=True, blocking=True)
