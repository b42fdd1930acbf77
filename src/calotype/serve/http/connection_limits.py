"""Limits the number of open HTTP connections and the time in which a request must arrive.

Opening a connection needs no key, so one client with many connections could lock out all others. Above the
limit the server closes a connection that serves no authenticated client: the oldest one of the address with
the most of these. A new connection therefore always gets in, and `/healthz` answers. `ClientShares` limits
the requests of authenticated clients.

This module uses private attributes of uvicorn; pyproject.toml names the supported versions.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
from collections import Counter
from typing import Literal

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from calotype.core.errors import CalotypeError
from calotype.serve.client_shares import address_group
from calotype.serve.errors import TooSlowError
from calotype.serve.http.errors import error_response
from calotype.serve.log_format import REQUEST_ID, begin_request
from calotype.serve.service import UnavailableError
from calotype.serve.settings import ServeSettings

_log = logging.getLogger(__name__)
_numbers = itertools.count()
_CLOSING_S = 1.0
"""Time for a client to read the response before the server aborts the connection."""
MIN_RESERVED = 8

Phase = Literal["served", "request", "head", "body"]
"""A request is being served, or the client still has to send a request, the rest of its head or its body."""


def reserved(settings: ServeSettings) -> int:
    """Connections beyond those of requests in service: for health checks and for authentication."""
    return max(MIN_RESERVED, settings.most_connections // 10)


class LimitedProtocol(H11Protocol):
    """One connection; `connections` creates a subclass with the configured limits."""

    most = 1100
    head_timeout_s = 10.0
    body_timeout_s = 60.0
    _phase: Phase = "served"
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.number = next(_numbers)
        self.address = address_group(self.client[0] if self.client else "")
        self._update_phase()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_phase()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._set_phase("served")
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_phase("served")
        super().connection_lost(exc)

    @property
    def serves_client(self) -> bool:
        """Whether the connection serves a request of an authenticated client."""
        return self._phase == "served" and self.scope is not None and "visit" in self.scope["state"]

    def _update_phase(self) -> None:
        """Restart the timer when the client enters another phase."""
        serving = self.cycle is not None and not self.cycle.response_complete
        # uvicorn removes a connection from its set after an upgrade or when it ends.
        if serving or self not in self.connections:
            self._set_phase("served")
        elif self.conn.their_state is not h11.IDLE:
            self._set_phase("body")
        else:
            self._set_phase("head" if self.conn.trailing_data[0] else "request")

    def _set_phase(self, phase: Phase) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if phase != "served":
            limit_s = self.head_timeout_s if phase == "head" else self.body_timeout_s
            self._timer = self.loop.call_later(limit_s, self._close, None)

    def _make_room(self) -> None:
        others = [
            other
            for other in self.connections
            if isinstance(other, LimitedProtocol) and other is not self and not other.serves_client
        ]
        if others:
            ((address, _),) = Counter(other.address for other in others).most_common(1)
            of_address = (other for other in others if other.address == address)
            rule = (
                f"{len(self.connections)} connections are open, the limit is {self.most}; this is the oldest "
                "connection of the address with the most; open fewer connections, or try again later"
            )
            min(of_address, key=lambda other: other.number)._close(UnavailableError(rule))

    def _close(self, error: CalotypeError | None) -> None:
        """Close the connection; tell the client why if it has begun a request or has had no response yet."""
        phase = self._phase
        self._set_phase("served")
        # This frees the slot at once; uvicorn removes the connection only later.
        self.connections.discard(self)
        if error is None and phase == "head":
            error = TooSlowError(
                f"the request head was not complete after {self.head_timeout_s:g} seconds; "
                "send it without delay"
            )
        if error is None or phase in ("served", "body") or (phase == "request" and self.cycle is not None):
            self.transport.abort()
            return
        # A separate context keeps this request id out of other requests.
        contextvars.copy_context().run(self._send_error, error)
        self.transport.close()
        self.loop.call_later(_CLOSING_S, self.transport.abort)

    def _send_error(self, error: CalotypeError) -> None:
        request_id = begin_request(None)
        _log.warning("closed a connection of %s: %s", self.address or "a client", error)
        response = error_response(error)
        headers = [
            *response.raw_headers,
            (REQUEST_ID.encode(), request_id.encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=response.status_code, headers=headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")


class Socket(WebSocketsSansIOProtocol):
    """A WebSocket that may be rejected with an HTTP response without logging an error."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # uvicorn takes such a response for an unfinished handshake and logs an error.
            self.handshake_complete = True


def connections(settings: ServeSettings) -> type[LimitedProtocol]:
    """Return a protocol class with these limits."""
    limits = {
        "most": settings.most_connections + reserved(settings),
        "head_timeout_s": min(settings.head_timeout_s, settings.body_timeout_s),
        "body_timeout_s": settings.body_timeout_s,
    }
    return type("Connection", (LimitedProtocol,), limits)
