"""Being told to stop: a signal sets a flag that training looks at between steps, when everything is whole.

SIGTERM (a scheduler takes the machine back), SIGUSR1 (Slurm's warning ahead of that) and SIGINT (the
keyboard). Knows nothing of what is stopped or saved.
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
    """Use as a context manager; handlers that were there before come back at its end.

    Only the main thread may handle signals: entered in another, this only offers `request` and the flag.
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
        """The name of the signal that came first, or what `request` was given."""
        return self._reason

    def request(self, reason: str) -> None:
        """Ask for the stop from the program itself."""
        self._reason = self._reason or reason

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if _is_ours_to_take(number):
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


def _is_ours_to_take(number: signal.Signals) -> bool:
    """Not a handler from outside Python, which could not be put back, nor a keyboard that is switched off."""
    previous = signal.getsignal(number)
    switched_off = number == signal.SIGINT and previous is signal.SIG_IGN
    return previous is not None and not switched_off


def agreed(flag: bool, device: torch.device | str = "cpu", group: dist.ProcessGroup | None = None) -> bool:
    """Whether any rank says so, the same answer on all: a signal may reach one rank a step before another.

    Every rank calls it at the same steps. `device` is one that the group (training's own if none is given)
    can reduce on; on a GPU the answer waits for all work queued before it.
    """
    if not is_distributed():
        return flag
    asked = torch.tensor(int(flag), device=device)
    dist.all_reduce(asked, op=dist.ReduceOp.MAX, group=group)
    return bool(asked.item())
