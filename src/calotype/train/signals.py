"""Stop signals while torch compiles: exit at once if nothing can be lost, otherwise spare the compilers.

A scheduler or a terminal sends the signal to every process of a run. A compiler process that dies of it fails
the step or blocks it for ever. Therefore the main thread blocks the stop signals, its child processes inherit
the mask, and a thread receives the signals instead.
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
"""The limit for an exit before the end of the first step: many launchers kill 10 s after the signal."""
# Processes without a handler for it ignore this signal.
_WAKE_SIGNAL = signal.SIGURG
_WAKE_AGAIN_S = 0.05
_CLOSE = 0


class StoppedBeforeFirstStep(BaseException):
    """A stop signal came while there was nothing to lose. Not an Exception, so that no handler catches it."""


class SignalShelter(StopSignal):
    """Keeps stop signals away from child processes started within; the stop flag is set all the same."""

    def __init__(self) -> None:
        super().__init__()
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        if self._previous:
            self._block_signals()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()
        super().__exit__(kind, error, trace)

    def _block_signals(self) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        listener = threading.Thread(
            target=self._listen, args=(read_end, threading.get_ident()), name="stop signals", daemon=True
        )
        listener.start()
        add_cleanup = self._cleanup.callback
        add_cleanup(os.close, read_end)
        add_cleanup(os.close, write_end)
        add_cleanup(listener.join)
        # Forked processes keep the pipe open, so a closed pipe would not be noticed.
        add_cleanup(os.write, write_end, bytes([_CLOSE]))
        add_cleanup(signal.set_wakeup_fd, signal.set_wakeup_fd(write_end, warn_on_full_buffer=False))
        add_cleanup(signal.signal, _WAKE_SIGNAL, signal.signal(_WAKE_SIGNAL, lambda *_: None))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._previous)
        add_cleanup(signal.pthread_sigmask, signal.SIG_SETMASK, before)

    def _listen(self, read_end: int, main_thread: int) -> None:
        """Wake the main thread for each stop signal. Python writes the number of a signal to the pipe in
        whichever thread it arrives; only the main thread runs the handler, and it may be blocked."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        while (number := os.read(read_end, 1)[0]) != _CLOSE:
            if number in STOP_SIGNALS:
                self._on_stop_signal()
                signal.pthread_kill(main_thread, _WAKE_SIGNAL)
                # The main thread may have been just about to block.
                time.sleep(_WAKE_AGAIN_S)
                signal.pthread_kill(main_thread, _WAKE_SIGNAL)

    def _on_stop_signal(self) -> None:
        """Runs in the listener thread, even while the main thread is in native code."""


class TrainingStop(SignalShelter):
    """Raises `StoppedBeforeFirstStep` in the main thread on a stop signal before the end of the first step.

    If the main thread is blocked in native code (waiting for the device, a peer or another thread), a stop
    that `owns_process` ends the process. It must be the first of the trainer's callbacks.
    """

    def __init__(self, *, owns_process: bool) -> None:
        super().__init__()
        self._owns_process = owns_process
        self._num_steps = 0
        self._raises_on_signal = False
        self._exit_timer: threading.Timer | None = None

    @property
    def in_first_step(self) -> bool:
        """Whether the signal came while this rank or a peer was in step one: ranks sync before the second."""
        return self.requested and self._num_steps <= 1

    def exit_if_requested(self) -> None:
        """Handle a signal that arrived before the handler was installed: it was blocked until now."""
        if self.requested:
            self._raises_on_signal = False
            raise StoppedBeforeFirstStep

    def after_step(self, _news: object, _loop: object) -> None:
        self._num_steps += 1
        self._raises_on_signal = False
        self._cancel_timer()

    def __enter__(self) -> Self:
        super().__enter__()
        self._raises_on_signal = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raises_on_signal = False
        super().__exit__(kind, error, trace)
        self._cancel_timer()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        super()._receive(number, frame)
        if self._raises_on_signal:
            self._raises_on_signal = False
            raise StoppedBeforeFirstStep

    def _on_stop_signal(self) -> None:
        if self._owns_process and not self._num_steps and self._exit_timer is None:
            self._exit_timer = threading.Timer(GRACE_S, self._exit_after_grace)
            self._exit_timer.daemon = True
            self._exit_timer.start()

    def _cancel_timer(self) -> None:
        if self._exit_timer is not None:
            self._exit_timer.cancel()

    def _exit_after_grace(self) -> None:
        if not self._num_steps:
            next_step = "the same command starts again, or resumes from its newest checkpoint"
            _log.warning(
                "stopped before the end of its first step, which took more than %g s; %s", GRACE_S, next_step
            )
            end_at_once()


def end_at_once() -> NoReturn:
    """Exit with code 0, kill all child processes and wait for none: libraries would first finish their queued
    compile jobs, and the compilers did not receive the signal."""
    for pid in list(_descendants_of(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _descendants_of(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _descendants_of(child)


def children_of(pid: int) -> Iterator[int]:
    """The child processes of `pid` that are still running."""
    # Processes and threads may end during the scan.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from map(int, (thread / "children").read_text(encoding="ascii").split())
