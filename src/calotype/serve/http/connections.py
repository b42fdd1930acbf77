"""Connections: so many, and those that owe us something for so long and no longer. Knows not what is asked.

A client that sends the head of a request byte by byte, or the rest of one that was refused, would hold one of
the connections there are for as long as it likes, and needs no key for that. Who comes when all are taken is
refused, and nobody else: uvicorn would refuse whoever asks while there are so many, so all who come at once.
"""

from __future__ import annotations

import asyncio
import logging

import h11
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger(__name__)


class Connection(H11Protocol):
    """One of them."""

    patience_s = 60.0
    most = 1000
    _owing: asyncio.TimerHandle | None = None
    _came_last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._came_last = len(self.connections) > self.most
        self._look()

    def data_received(self, data: bytes) -> None:
        self.app = self.config.loaded_app
        if self._is_too_many():
            _log.warning(
                "refused: %d connections are open, the limit is %d", len(self.connections), self.most
            )
            self.app = service_unavailable
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _should_upgrade(self) -> bool:
        return super()._should_upgrade() and not self._is_too_many()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._forget()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _is_too_many(self) -> bool:
        return self._came_last and len(self.connections) > self.most

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


def connections(patience_s: float, most: int) -> type[Connection]:
    """At most so many, where a whole request has to be there so long after the last answer."""
    return type("Connection", (Connection,), {"patience_s": patience_s, "most": most})
