"""A request's id, from its header to every line of the log, and the access log: one JSON line a request.

Knows nothing of what is asked.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"
_USABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")
_log = logging.getLogger(__name__)
access_log = logging.getLogger("calotype.access")


def request_id() -> str:
    """Of the request that is being served; empty outside of one."""
    return _current.get()


def begin_request(given: str | None) -> str:
    """Name the request that begins: as its client does, where that is a name a log can hold."""
    name = given if given and _USABLE.fullmatch(given) else uuid.uuid4().hex
    _current.set(name)
    return name


class JsonLines(logging.Formatter):
    """Log records as JSON, one a line, with the id of the request they belong to."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a trace is one string of it."""
        values = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({"request_id": request_id()} if request_id() else {}),
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)


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
        name = begin_request(headers.get(HEADER))
        began, status, sent = time.perf_counter(), 0, 0

        async def named(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer[HEADER] = name
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
            caller = scope.get("state", {}).get("caller")
            values = {
                "request_id": name,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "seconds": round(time.perf_counter() - began, 6),
                "bytes": sent,
                "client": caller.name if caller else None,
                "address": (scope.get("client") or ("",))[0],
            }
            access_log.info("request", extra={"values": values})
