"""Ports for programs that want to be told a number."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

_FROM, _TO = 20_000, 32_000
"""Below what the system gives to connections, or one of these may take a port between its choice and its use;
above what Ray keeps for its workers."""


def free_ports(number: int = 1) -> list[int]:
    """So many in a row."""
    while True:
        first = _FROM + secrets.randbelow(_TO - _FROM)
        row = list(range(first, first + number))
        with ExitStack() as held:
            try:
                for port in row:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        return row
