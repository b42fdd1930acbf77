"""What stands on a node of the cluster: a worker's process, and the way to it. Knows nothing of Ray.

The worker ends when this process does, however that comes: its socket closes then.
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
"""Of what is handed on at a time."""


class WorkerHost:
    """A worker and our end of its channel, as bytes: what they mean is nothing to it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        Thread(target=_end_with, args=(os.pidfd_open(os.getppid()),), daemon=True).start()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, and no shell
                [sys.executable, "-P", "-m", "calotype.serve.worker", f"--fd={theirs.fileno()}", *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def tell(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> Iterator[bytes]:
        """What the worker says, up to its end."""
        with suppress(ConnectionError):
            while data := self._socket.recv(MAX_BYTES):
                yield data

    def process(self) -> tuple[str, int]:
        """The node's name, and the worker's number there."""
        return os.uname().nodename, self._process.pid

    def close(self) -> None:
        """The worker ends once it sees this."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> int:
        """Its exit status once it has ended."""
        return self._process.wait()


def _end_with(parent: int) -> NoReturn:
    """End when the node's own process does: who waits for a worker is not ended by that alone."""
    ended = poll()
    ended.register(parent, POLLIN)
    ended.poll()
    os._exit(1)
