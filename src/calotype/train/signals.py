"""Being told to stop while torch compiles: at once where nothing can be lost, else without harm to compilers.

A scheduler or a terminal signals every process of a run. A compiler's process that dies of it fails the step,
or is waited for without end. So the main thread holds stop signals back, which the processes it starts
inherit, and a thread takes them in its place. Knows nothing of what is trained or saved.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn, Self

from calotype.train.checkpoint.preemption import STOP_SIGNALS, StopSignal

_log = logging.getLogger(__name__)

GRACE_S = 8.0
"""So long may leaving take before the first step is over: many are killed 10 s after they are told."""
# Processes that do not know it ignore it.
_WAKES = signal.SIGURG
_SOON_S = 0.05
_END = 0


class StoppedBeforeFirstStep(BaseException):
    """Told to stop while there was nothing to lose. No error, so that nobody on the way handles it as one."""


class SignalShelter(StopSignal):
    """Processes that are started within do not get the signals; the flag is set all the same."""

    def __init__(self) -> None:
        super().__init__()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        if self._previous:
            self._shelter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()
        super().__exit__(kind, error, trace)

    def _shelter(self) -> None:
        ears, mouth = os.pipe()
        os.set_blocking(mouth, False)
        listener = threading.Thread(
            target=self._listen, args=(ears, threading.get_ident()), name="stop signals", daemon=True
        )
        listener.start()
        undo = self._undo.callback
        undo(os.close, ears)
        undo(os.close, mouth)
        undo(listener.join)
        # Forked processes keep the pipe open, so closing it would not be noticed.
        undo(os.write, mouth, bytes([_END]))
        undo(signal.set_wakeup_fd, signal.set_wakeup_fd(mouth, warn_on_full_buffer=False))
        undo(signal.signal, _WAKES, signal.signal(_WAKES, lambda *_: None))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._previous)
        undo(signal.pthread_sigmask, signal.SIG_SETMASK, before)

    def _listen(self, ears: int, main_thread: int) -> None:
        """Whichever thread a signal comes to, Python notes its number here; its handler is the main thread's
        to run, which may be waiting and has to be woken for it."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        while (number := os.read(ears, 1)[0]) != _END:
            if number in STOP_SIGNALS:
                self._noticed()
                signal.pthread_kill(main_thread, _WAKES)
                # It may have been just about to wait.
                time.sleep(_SOON_S)
                signal.pthread_kill(main_thread, _WAKES)

    def _noticed(self) -> None:
        """Called in the thread that listens, even while the main one is in code that is not Python's."""


class TrainingStop(SignalShelter):
    """Told to stop before the first step, the main thread leaves by `StoppedBeforeFirstStep`.

    If it cannot (it waits in code that is not Python's, for the device, a peer or another thread), a stop
    that `owns_process` ends the process. Be the first of the loop's watchers.
    """

    def __init__(self, *, owns_process: bool) -> None:
        super().__init__()
        self._owns_process = owns_process
        self._num_steps = 0
        self._interrupts = False
        self._limit: threading.Timer | None = None

    @property
    def in_first_step(self) -> bool:
        """Whether it was told to stop while it or a peer was in step one: they meet before the second."""
        return self.requested and self._num_steps <= 1

    def exit_if_requested(self) -> None:
        """For who was told before it could listen: the signal was held back until now."""
        if self.requested:
            self._interrupts = False
            raise StoppedBeforeFirstStep

    def after_step(self, _news: object, _loop: object) -> None:
        self._num_steps += 1
        self._interrupts = False
        self._lift_limit()

    def __enter__(self) -> Self:
        super().__enter__()
        self._interrupts = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts = False
        super().__exit__(kind, error, trace)
        self._lift_limit()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        super()._receive(number, frame)
        if self._interrupts:
            self._interrupts = False
            raise StoppedBeforeFirstStep

    def _noticed(self) -> None:
        if self._owns_process and not self._num_steps and self._limit is None:
            self._limit = threading.Timer(GRACE_S, self._give_up)
            self._limit.daemon = True
            self._limit.start()

    def _lift_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _give_up(self) -> None:
        if not self._num_steps:
            way = "the same command begins again, or goes on from its newest checkpoint"
            _log.warning(
                "stopped before its first step was over, which took more than %g s; %s", GRACE_S, way
            )
            end_at_once()


def end_at_once() -> NoReturn:
    """End this process well, with all it started and without waiting for any: libraries would first finish
    what they have queued for compilers, and compilers were kept from hearing the signal."""
    for pid in list(_started_by(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _started_by(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _started_by(child)


def children_of(pid: int) -> Iterator[int]:
    """The processes that a process started itself and that are still there."""
    # Processes and threads may end while they are looked at.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from map(int, (thread / "children").read_text(encoding="ascii").split())
