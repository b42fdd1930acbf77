"""How long things take on a device, and how far ahead of it they are asked for. Knows nothing of pictures.

A GPU does things after they were asked for; who measures must not make it wait.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def times_on(device: torch.device) -> CpuTimes | GpuTimes:
    """The times of one kind of thing on a device."""
    return GpuTimes() if device.type == "cuda" else CpuTimes()


class CpuTimes:
    """How long things take where nothing goes on by itself."""

    last_s = 0.0
    last_about: Any = None
    """What was said of it."""

    @contextmanager
    def timed(self, about: Any = None) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.last_s, self.last_about = time.perf_counter() - started, about

    def wait_for_all_but_the_last(self) -> None:
        """There is nothing to wait for."""

    def fetched(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: tensor


class GpuTimes:
    """How long things took that the device does after they were asked for."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self.last_about: Any = None
        self._under_way: deque[tuple[torch.cuda.Event, torch.cuda.Event, Any]] = deque()

    @contextmanager
    def timed(self, about: Any = None) -> Iterator[None]:
        while self._under_way and self._under_way[0][1].query():
            self._over()
        begins, ends = _event(), _event()
        begins.record()
        yield
        ends.record()
        self._under_way.append((begins, ends, about))

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
        begins, ends, self.last_about = self._under_way.popleft()
        self.last_s = begins.elapsed_time(ends) / 1000


def _event() -> torch.cuda.Event:
    # Blocking ones leave the processor to others while somebody waits.
    return torch.cuda.Event(enable_timing=True, blocking=True)
