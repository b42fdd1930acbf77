"""Every request's id and its line in the access log. Knows nothing of what is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calotype.serve.log_format import REQUEST_ID, access_log, begin_request

_log = logging.getLogger(__name__)
_BEGINNINGS = {"websocket.accept": 101, "websocket.close": 403}
"""The status of a socket by what is said first; other answers say it themselves."""


class AccessLogMiddleware:
    """Gives every request its id and its line, and an answer where the program itself failed."""

    def __init__(self, app: ASGIApp, on_bug: Callable[[], Response]) -> None:
        self.app = app
        self._on_bug = on_bug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket from its opening to its end."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        name = begin_request(headers.get(REQUEST_ID))
        began, status, sent = time.perf_counter(), 0, 0

        async def named(message: Message) -> None:
            nonlocal status, sent
            if not status:
                status = message.get("status") or _BEGINNINGS[message["type"]]
                answer = MutableHeaders(raw=list(message.get("headers", ())))
                answer[REQUEST_ID] = name
                answer["X-Content-Type-Options"] = "nosniff"
                answer["Cross-Origin-Resource-Policy"] = "same-origin"
                message = {**message, "headers": answer.raw}
            sent += sum(len(message.get(part) or b"") for part in ("body", "bytes", "text"))
            await send(message)

        try:
            await self.app(scope, receive, named)
        except Exception:
            if scope["type"] == "websocket":
                # The server ends the socket, and has the same to say of it.
                raise
            _log.exception("a request failed by a mistake of ours")
            if not status:
                await self._on_bug()(scope, receive, named)
        finally:
            visit = scope.get("state", {}).get("visit")
            values = {
                "request_id": name,
                "method": scope.get("method", "GET"),
                "path": scope["path"],
                "status": status,
                "seconds": round(time.perf_counter() - began, 6),
                "bytes": sent,
                "client": visit.caller.name if visit else None,
                "address": (scope.get("client") or ("",))[0],
            }
            access_log.info("request", extra={"values": values})
