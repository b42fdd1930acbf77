"""HTTP connections: how many are open, how long a request may take to arrive, which close to make room.

A connection needs no key, so a client that opens many could keep all others out. Where there are too many,
one closes that serves no known client: the oldest of the address that has the most of these. So a new
connection always finds room, and `/healthz` answers. `ClientShares` bounds requests of known clients.

This module relies on private attributes of uvicorn; pyproject.toml names the versions that it works with.
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
"""What a client has to read the answer to a refused connection in."""
MIN_RESERVED = 8

Phase = Literal["served", "request", "head", "body"]
"""A request is served, or the client owes a request, the rest of its head or the rest of its body."""


def reserved(settings: ServeSettings) -> int:
    """Connections beyond those of requests in service: for health checks, and to learn who the client is."""
    return max(MIN_RESERVED, settings.most_connections // 10)


class LimitedProtocol(H11Protocol):
    """One connection; `connections` gives it its limits."""

    most = 1100
    head_timeout_s = 10.0
    body_timeout_s = 60.0
    _phase: Phase = "served"
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.number = next(_numbers)
        self.address = address_group(self.client[0] if self.client else "")
        self._watch()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._set_phase("served")
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_phase("served")
        super().connection_lost(exc)

    @property
    def serves_client(self) -> bool:
        """Whether it has a request of a client that was let in."""
        return self._phase == "served" and self.scope is not None and "visit" in self.scope["state"]

    def _watch(self) -> None:
        """Begin a time limit when the client owes something else than before."""
        serving = self.cycle is not None and not self.cycle.response_complete
        # After an upgrade or the end uvicorn has taken it off its list.
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
            self._timer = self.loop.call_later(limit_s, self._end, None)

    def _make_room(self) -> None:
        others = [
            one
            for one in self.connections
            if isinstance(one, LimitedProtocol) and one is not self and not one.serves_client
        ]
        if others:
            ((address, _),) = Counter(one.address for one in others).most_common(1)
            of_address = (one for one in others if one.address == address)
            rule = (
                f"{len(self.connections)} connections are open, the limit is {self.most}; this one is the "
                "oldest of the address that has the most; open fewer connections, or try again later"
            )
            min(of_address, key=lambda one: one.number)._end(UnavailableError(rule))

    def _end(self, error: CalotypeError | None) -> None:
        """Close it; a client that has begun to speak, or that has had no answer yet, hears why."""
        phase = self._phase
        self._set_phase("served")
        # Its place is free at once; uvicorn itself takes it off this list only later.
        self.connections.discard(self)
        if error is None and phase == "head":
            error = TooSlowError(
                f"the head of the request was not complete after {self.head_timeout_s:g} seconds; "
                "send it at once"
            )
        if error is None or phase in ("served", "body") or (phase == "request" and self.cycle is not None):
            self.transport.abort()
            return
        # In a context of its own: the request's name must not become that of others.
        contextvars.copy_context().run(self._answer, error)
        self.transport.close()
        self.loop.call_later(_CLOSING_S, self.transport.abort)

    def _answer(self, error: CalotypeError) -> None:
        name = begin_request(None)
        _log.warning("closed a connection of %s: %s", self.address or "a client", error)
        answer = error_response(error)
        headers = [*answer.raw_headers, (REQUEST_ID.encode(), name.encode()), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=answer.status_code, headers=headers),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")


class Socket(WebSocketsSansIOProtocol):
    """A WebSocket whose refusal by an HTTP answer is no error."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # uvicorn takes such an answer for an unfinished handshake and logs an error.
            self.handshake_complete = True


def connections(settings: ServeSettings) -> type[LimitedProtocol]:
    """The class of connections with these limits."""
    limits = {
        "most": settings.most_connections + reserved(settings),
        "head_timeout_s": min(settings.head_timeout_s, settings.body_timeout_s),
        "body_timeout_s": settings.body_timeout_s,
    }
    return type("Connection", (LimitedProtocol,), limits)
