"""Measures device time without synchronizing, and limits how far ahead of the GPU work is queued."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def times_on(device: torch.device) -> CpuTimes | GpuTimes:
    """Return a timer for one kind of work on a device."""
    return GpuTimes() if device.type == "cuda" else CpuTimes()


class CpuTimes:
    """Times synchronous work on the CPU."""

    last_s = 0.0
    last_about: Any = None
    """The `about` of that measurement."""

    @contextmanager
    def timed(self, about: Any = None) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.last_s, self.last_about = time.perf_counter() - started, about

    def wait_for_all_but_the_last(self) -> None:
        """Do nothing: the CPU queues no work."""

    def fetched(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: tensor


class GpuTimes:
    """Times asynchronous work on a GPU with CUDA events."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self.last_about: Any = None
        self._pending: deque[tuple[torch.cuda.Event, torch.cuda.Event, Any]] = deque()

    @contextmanager
    def timed(self, about: Any = None) -> Iterator[None]:
        while self._pending and self._pending[0][1].query():
            self._record_oldest()
        start, end = _event(), _event()
        start.record()
        yield
        end.record()
        self._pending.append((start, end, about))

    def wait_for_all_but_the_last(self) -> None:
        while len(self._pending) > 1:
            self._pending[0][1].synchronize()
            self._record_oldest()

    def fetched(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Start a copy to pinned memory; the returned function waits for it."""
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor, non_blocking=True)
        copied = _event()
        copied.record()

        def wait() -> torch.Tensor:
            copied.synchronize()
            return copy

        return wait

    def _record_oldest(self) -> None:
        start, end, self.last_about = self._pending.popleft()
        self.last_s = start.elapsed_time(end) / 1000


def _event() -> torch.cuda.Event:
    # `blocking=True` yields the CPU to other threads during a wait.
    return torch.cuda.Event(enable_timing=True, blocking=True)
