"""Server-sent events: encoding, and a streaming response that ends on disconnect or key revocation."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Send

from calotype.serve.auth import Session
from calotype.serve.http.disconnect import with_pings

MEDIA_TYPE = "text/event-stream"
RETRY_MS = 1000
DESCRIBED = {
    MEDIA_TYPE: {
        "schema": {
            "type": "object",
            "description": "One event; `data` is JSON.",
            "properties": {name: {"type": "string"} for name in ("event", "data", "id")},
        }
    }
}
"""Describes the stream in the OpenAPI document."""
_PING = format_sse_event(comment="still here")


def event(name: str, values: Mapping[str, Any], *, event_id: str | None = None) -> bytes:
    """Encode one event."""
    return format_sse_event(data_str=json.dumps(values), event=name, id=event_id)


def first(event_text: bytes) -> bytes:
    """Add the time after which the client reconnects."""
    return f"retry: {RETRY_MS}\n".encode() + event_text


class EventStream(StreamingResponse):
    """Streams events until the source ends, the client disconnects or its key is revoked; then closes it."""

    def __init__(self, source: AsyncGenerator[bytes], visit: Session, ping_s: float) -> None:
        self._source = _while_valid(visit, with_pings(source, _PING, ping_s))
        super().__init__(
            self._source,
            media_type=MEDIA_TYPE,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def stream_response(self, send: Send) -> None:
        """Stream and close the source; Starlette leaves a suspended generator to the garbage collector."""
        async with aclosing(self._source):
            await super().stream_response(send)


async def _while_valid(session: Session, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for item in events:
            # A client that reconnects gets the reason as an error.
            if not session.is_valid():
                return
            yield item
