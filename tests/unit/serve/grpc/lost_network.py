"""A network that can be lost: connections through it stay open, and nothing arrives any more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Network:
    """A port that leads to another one."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = [self._listening]
        self._threads: list[threading.Thread] = []
        self._lost = threading.Event()
        self._begin(self._accept)

    def lose(self) -> None:
        """What is said from now on is heard by nobody."""
        self._lost.set()

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=20)
        for end in self._ends:
            end.close()

    def _begin(self, target: Callable[..., None], *values: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=values))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                self._ends.append(near)
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends.append(far)
                self._begin(self._pass_on, near, far)
                self._begin(self._pass_on, far, near)

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if not self._lost.is_set():
                    other.sendall(data)
            if not self._lost.is_set():
                other.shutdown(socket.SHUT_WR)


@contextmanager
def network(port: int) -> Iterator[Network]:
    """A way to a port of this machine."""
    way = Network(port)
    try:
        yield way
    finally:
        way.close()
