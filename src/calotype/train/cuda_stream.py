"""Work for a GPU beside what it is asked for otherwise. Knows nothing of training."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


class SideStream:
    """A stream of its own; without a GPU, or if nobody wants one, everything runs in its turn.

    Memory taken here is given back to this stream alone. So `begin` has to come after the last reader of what
    was made here before, or it might be written over under the reader's eyes.
    """

    def __init__(self, device: torch.device, *, wanted: bool) -> None:
        self._stream = torch.cuda.Stream(device) if wanted and device.type == "cuda" else None

    def fork(self) -> None:
        """What is asked for here from now on waits for all there was until now, and for nothing else."""
        if self._stream:
            self._stream.wait_stream(torch.cuda.current_stream())

    def use(self) -> AbstractContextManager[object]:
        """What is asked for inside runs here."""
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()

    def join(self) -> None:
        """What is asked for elsewhere from now on waits for all that was asked for here."""
        if self._stream:
            torch.cuda.current_stream().wait_stream(self._stream)
