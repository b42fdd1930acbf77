"""Connections that owe us something, for so long and no longer. Knows nothing of what is asked over them.

A client that sends the head of a request byte by byte, or the rest of one that was refused, would hold one of
the connections there are for as long as it likes, and needs no key for that.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """One of them."""

    patience_s = 60.0
    _owing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._forget()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Whose turn it is: ours while a request is served, and else the client's."""
        serving = self.cycle is not None and not self.cycle.response_complete
        # After an upgrade or the end this one has nothing more to say.
        if serving or self not in self.connections:
            self._forget()
        elif self._owing is None:
            self._owing = self.loop.call_later(self.patience_s, self.transport.abort)

    def _forget(self) -> None:
        if self._owing is not None:
            self._owing.cancel()
            self._owing = None


def connections(patience_s: float) -> type[Connection]:
    """Those where a whole request has to be there so long after the last answer."""
    return type("Connection", (Connection,), {"patience_s": patience_s})
