"""Runs a worker process on a node of the cluster and relays bytes to and from it.

The worker ends whenever this process ends, because its socket closes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from select import POLLIN, poll
from threading import Thread
from typing import NoReturn

MAX_BYTES = 2**20
"""Largest chunk to relay."""


class WorkerHost:
    """A worker and the other end of its channel, as raw bytes."""

    def __init__(self, arguments: Sequence[str]) -> None:
        Thread(target=_end_with, args=(os.pidfd_open(os.getppid()),), daemon=True).start()
        self._socket, worker_end = socket.socketpair()
        with worker_end:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, and no shell
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "calotype.serve.worker",
                    f"--fd={worker_end.fileno()}",
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(worker_end.fileno(),),
            )

    def tell(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> Iterator[bytes]:
        """Yield what the worker sends until it ends."""
        with suppress(ConnectionError):
            while data := self._socket.recv(MAX_BYTES):
                yield data

    def process(self) -> tuple[str, int]:
        """Return the node's name and the worker's process id."""
        return os.uname().nodename, self._process.pid

    def close(self) -> None:
        """Shut down the socket, which ends the worker."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> int:
        """Wait for its exit status."""
        return self._process.wait()


def _end_with(parent: int) -> NoReturn:
    """Exit when the Ray node process ends: a thread that waits for the worker would keep this one alive."""
    ended = poll()
    ended.register(parent, POLLIN)
    ended.poll()
    os._exit(1)
