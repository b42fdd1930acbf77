"""Middleware that gives every request an id and a line in the access log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calotype.serve.log_format import REQUEST_ID, access_log, begin_request

_log = logging.getLogger(__name__)
_SOCKET_STATUS = {"websocket.accept": 101, "websocket.close": 403}
"""Status of a WebSocket by its first message; HTTP responses carry their own."""


class AccessLogMiddleware:
    """Sets the request id, writes the access log and responds to uncaught exceptions."""

    def __init__(self, app: ASGIApp, on_bug: Callable[[], Response]) -> None:
        self.app = app
        self._on_bug = on_bug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or one WebSocket from open to close."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = begin_request(headers.get(REQUEST_ID))
        began, status, sent = time.perf_counter(), 0, 0

        async def send_with_id(message: Message) -> None:
            nonlocal status, sent
            if not status:
                status = message.get("status") or _SOCKET_STATUS[message["type"]]
                response_headers = MutableHeaders(raw=list(message.get("headers", ())))
                response_headers[REQUEST_ID] = request_id
                response_headers["X-Content-Type-Options"] = "nosniff"
                response_headers["Cross-Origin-Resource-Policy"] = "same-origin"
                message = {**message, "headers": response_headers.raw}
            sent += sum(len(message.get(part) or b"") for part in ("body", "bytes", "text"))
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            if scope["type"] == "websocket":
                # The server closes the WebSocket and logs the exception itself.
                raise
            _log.exception("a request failed with an internal error")
            if not status:
                await self._on_bug()(scope, receive, send_with_id)
        finally:
            visit = scope.get("state", {}).get("visit")
            values = {
                "request_id": request_id,
                "method": scope.get("method", "GET"),
                "path": scope["path"],
                "status": status,
                "seconds": round(time.perf_counter() - began, 6),
                "bytes": sent,
                "client": visit.caller.name if visit else None,
                "address": (scope.get("client") or ("",))[0],
            }
            access_log.info("request", extra={"values": values})
