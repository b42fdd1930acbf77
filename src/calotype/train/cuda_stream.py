"""A side CUDA stream for work that overlaps with the current stream."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


class SideStream:
    """A separate CUDA stream; without a GPU, or if not wanted, everything runs in sequence.

    Memory allocated here is reused by this stream only. So `fork` must come after the last read of earlier
    results of this stream, or later work may overwrite them while they are read.
    """

    def __init__(self, device: torch.device, *, wanted: bool) -> None:
        self._stream = torch.cuda.Stream(device) if wanted and device.type == "cuda" else None

    def fork(self) -> None:
        """Work queued here from now on waits for all work queued so far on the current stream, no more."""
        if self._stream:
            self._stream.wait_stream(torch.cuda.current_stream())

    def use(self) -> AbstractContextManager[object]:
        """Queue the work inside the context on this stream."""
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()

    def join(self) -> None:
        """Work queued on the current stream from now on waits for all work queued here."""
        if self._stream:
            torch.cuda.current_stream().wait_stream(self._stream)
