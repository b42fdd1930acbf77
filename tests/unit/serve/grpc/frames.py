"""HTTP/2 by hand, as much as pings need: gRPC's own client sends none faster than one a second."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1


class Frames:
    """A connection to a gRPC server, without any call."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._read = self._socket.makefile("rb")
        self._socket.sendall(PREFACE)
        self._send(SETTINGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._read.close()
        self._socket.close()

    def ping(self, number: int) -> None:
        """Ping and wait for the answer; an error if the server ends the connection instead."""
        said = number.to_bytes(8)
        self._send(PING, said)
        while True:
            kind, flags, body = self._next()
            if kind == GOAWAY:
                raise ConnectionAbortedError(f"ping {number} was answered by {body[8:].decode()!r}")
            if kind == PING and flags & ACK and body == said:
                return

    def _send(self, kind: int, body: bytes = b"") -> None:
        self._socket.sendall(len(body).to_bytes(3) + bytes([kind, 0]) + bytes(4) + body)

    def _next(self) -> tuple[int, int, bytes]:
        head = self._read.read(9)
        if len(head) < 9:
            raise ConnectionAbortedError("the server has closed the connection")
        return head[3], head[4], self._read.read(int.from_bytes(head[:3]))
