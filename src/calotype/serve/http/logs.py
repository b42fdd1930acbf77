"""Every request's id and its line in the access log. Knows nothing of what is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calotype.serve.logs import REQUEST_ID, access_log, begin_request

_log = logging.getLogger(__name__)


class RequestLog:
    """Gives every request its id and its line, and an answer where the program itself failed."""

    def __init__(self, app: ASGIApp, on_bug: Callable[[], Response]) -> None:
        self.app = app
        self._on_bug = on_bug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        name = begin_request(headers.get(REQUEST_ID))
        began, status, sent = time.perf_counter(), 0, 0

        async def named(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer[REQUEST_ID] = name
                answer["X-Content-Type-Options"] = "nosniff"
                answer["Cross-Origin-Resource-Policy"] = "same-origin"
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, named)
        except Exception:
            _log.exception("a request failed by a mistake of ours")
            if not status:
                await self._on_bug()(scope, receive, named)
        finally:
            visit = scope.get("state", {}).get("visit")
            values = {
                "request_id": name,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "seconds": round(time.perf_counter() - began, 6),
                "bytes": sent,
                "client": visit.caller.name if visit else None,
                "address": (scope.get("client") or ("",))[0],
            }
            access_log.info("request", extra={"values": values})
