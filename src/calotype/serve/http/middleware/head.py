"""HEAD for every address that can be had: its GET without the body. Knows nothing of routes."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """An ASGI middleware; what is inside of it never sees a HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # Ended here: a stream of events would go on for ever with nobody to read it.
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # Who asks is noted inside and logged outside.
        scope.setdefault("state", {})
        await self.app({**scope, "method": "GET"}, receive, head)
