"""Stop signals: a handler sets a flag that training checks between steps, when its state is consistent.

The signals are SIGTERM (a scheduler takes the machine back), SIGUSR1 (Slurm's warning ahead of that) and
SIGINT (the keyboard).
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from calotype.train.checkpoint.rank_sync import is_distributed

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopSignal:
    """Use it as a context manager; the previous handlers are restored at its end.

    Only the main thread can install handlers: in another thread it only offers `request` and the flag.
    """

    def __init__(self) -> None:
        self._reason: str | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._interrupted = False

    @property
    def requested(self) -> bool:
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """The name of the first signal, or the argument of `request`."""
        return self._reason

    def request(self, reason: str) -> None:
        """Request a stop from within the program."""
        self._reason = self._reason or reason

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if _can_handle(number):
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        # Nothing is logged here: a handler may run in the middle of a print.
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        self.request(signal.Signals(number).name)


def _can_handle(number: signal.Signals) -> bool:
    """Excludes handlers from outside Python, which cannot be restored, and an ignored SIGINT."""
    previous = signal.getsignal(number)
    ignored = number == signal.SIGINT and previous is signal.SIG_IGN
    return previous is not None and not ignored


def agreed(flag: bool, device: torch.device | str = "cpu", group: dist.ProcessGroup | None = None) -> bool:
    """Whether `flag` is true on any rank, with the same answer on all ranks.

    A signal may reach one rank a step before another. Every rank calls it at the same steps. `device` is one
    that the group (training's own by default) can reduce on; on a GPU the call waits for all work queued
    before.
    """
    if not is_distributed():
        return flag
    result = torch.tensor(int(flag), device=device)
    dist.all_reduce(result, op=dist.ReduceOp.MAX, group=group)
    return bool(result.item())
