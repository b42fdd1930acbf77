"""Server-sent events: their text, and a response that lets go when its reader does, or may read no more.

Knows nothing of jobs.
"""

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
"""For the OpenAPI."""
_PING = format_sse_event(comment="still here")


def event(name: str, values: Mapping[str, Any], *, event_id: str | None = None) -> bytes:
    """One event as it is sent."""
    return format_sse_event(data_str=json.dumps(values), event=name, id=event_id)


def first(event_text: bytes) -> bytes:
    """The same event, which also says how soon to come back when the connection breaks."""
    return f"retry: {RETRY_MS}\n".encode() + event_text


class EventStream(StreamingResponse):
    """Events until their source ends, the reader leaves or its key is revoked; then the source is closed."""

    def __init__(self, source: AsyncGenerator[bytes], visit: Session, ping_s: float) -> None:
        self._source = _while_it_lasts(visit, with_pings(source, _PING, ping_s))
        super().__init__(
            self._source,
            media_type=MEDIA_TYPE,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def stream_response(self, send: Send) -> None:
        """As Starlette does it, which leaves a source that stands at a `yield` to the garbage collector."""
        async with aclosing(self._source):
            await super().stream_response(send)


async def _while_it_lasts(visit: Session, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for each in events:
            # Whoever comes back is told why.
            if not visit.is_valid():
                return
            yield each
