"""Copy a state's tensors to host memory, so that they can be written while the originals change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.train.checkpoint.flatten import FlatState

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """A copy that may still be in transfer from a GPU."""

    flat: FlatState
    finish: Callable[[], None]
    """Waits until the copy is complete; call it before reading."""


class HostBuffers:
    """Host buffers that are reused between snapshots, because pinning memory takes longer than copying.

    A snapshot is valid until the next one is taken.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._pinning_works = True

    def snapshot(self, flat: FlatState) -> Snapshot:
        """Copy every tensor.

        Copies from a GPU are queued on its current stream, after the kernels that computed the values and
        before those that change them, so that the caller can continue at once.
        """
        copies = {name: self._copy(name, tensor) for name, tensor in flat.tensors.items()}
        self._buffers = copies
        devices = {tensor.device for tensor in flat.tensors.values() if tensor.is_cuda}
        arrivals = [torch.cuda.current_stream(device).record_event() for device in devices]

        def finish() -> None:
            for arrival in arrivals:
                arrival.synchronize()

        return Snapshot(FlatState(copies, flat.skeleton), finish)

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        fresh = buffer is None or (buffer.dtype, buffer.shape, buffer.stride()) != (
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
        )
        if buffer is None or fresh:
            buffer = self._allocate(tensor)
        return buffer.copy_(tensor, non_blocking=tensor.is_cuda)

    def _allocate(self, tensor: Tensor) -> Tensor:
        if tensor.is_cuda and self._pinning_works:
            try:
                return torch.empty_like(tensor, device="cpu", pin_memory=True)
            except RuntimeError as error:
                self._pinning_works = False
                _log.warning("host memory cannot be pinned, so saving blocks training for longer: %s", error)
        return torch.empty_like(tensor, device="cpu")
