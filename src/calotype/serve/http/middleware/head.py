"""Middleware that answers HEAD for every route that supports GET."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """Turns HEAD into GET and drops the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # End the response here: an event stream would never end by itself.
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # Inner middleware stores the session in this dict; outer middleware logs it.
        scope.setdefault("state", {})
        await self.app({**scope, "method": "GET"}, receive, head)
