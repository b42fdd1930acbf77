"""Manages decoding processes: starts them on demand and ends them after a large image.

A process that decoded a large image keeps its memory, so it is ended, and the next image gets a new one. If
the client disconnects, the process is killed: nothing else stops a decoder.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from calotype.serve.decoding.frames import BrokenPipeToProcessError, read_frame, write_frame

_log = logging.getLogger(__name__)


class ProcessEndedError(Exception):
    """A decoding process ended before it answered."""


class DecodingProcesses:
    """At most `most` processes of `child_process.py`. For one event loop."""

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="decoding")
        self._idle: list[subprocess.Popen[bytes]] = []
        self._running: set[subprocess.Popen[bytes]] = set()
        self.started = 0
        """Processes started so far."""
        weakref.finalize(self, _end_all, self._idle, self._running, self._threads)

    @property
    def pids(self) -> list[int]:
        """Ids of living processes."""
        return [process.pid for process in (*self._idle, *self._running)]

    async def ask(
        self, values: dict[str, Any], attachments: Sequence[bytes], *, keep: bool
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request to a process; it is killed if this is cancelled, and ended unless `keep`."""
        # A request without `keep` gets a new process, so that an idle one stays ready for small images.
        process = self._idle.pop() if keep and self._idle else self._start()
        self._running.add(process)
        try:
            answer = await asyncio.get_running_loop().run_in_executor(
                self._threads, _exchange, process, values, attachments
            )
        except BaseException as error:
            process.kill()
            self._running.discard(process)
            self._threads.submit(_close, process)
            if isinstance(error, BrokenPipeToProcessError | OSError):
                code = await asyncio.get_running_loop().run_in_executor(self._threads, process.wait)
                _log.error("a decoding process ended with exit status %d", code)
                raise ProcessEndedError(f"exit status {code}") from error
            raise
        self._running.discard(process)
        if keep:
            self._idle.append(process)
        else:
            process.kill()
            self._threads.submit(_close, process)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        return subprocess.Popen(
            (sys.executable, "-P", "-m", "calotype.serve.decoding.child_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )


def _exchange(
    process: subprocess.Popen[bytes], values: dict[str, Any], attachments: Sequence[bytes]
) -> tuple[dict[str, Any], list[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    write_frame(process.stdin, values, attachments)
    return read_frame(process.stdout)


def _close(process: subprocess.Popen[bytes]) -> None:
    """Reap a killed process."""
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            # Unsent data cannot be sent any more.
            with suppress(OSError, ValueError):
                stream.close()


def _end_all(
    idle: list[subprocess.Popen[bytes]], running: set[subprocess.Popen[bytes]], threads: ThreadPoolExecutor
) -> None:
    threads.shutdown(wait=False)
    for process in (*idle, *running):
        process.kill()
        _close(process)
