"""What stands before every route: whose server is asked for, from which page, by whom, with how large a body.

Nothing of a body is read before its sender is known, and nothing of it is believed before it was read within
its limits. Knows nothing of routes but which are open to anybody.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calotype.core.errors import CalotypeError
from calotype.serve.access import Access, ForbiddenError, bearer_token
from calotype.serve.failures import TooLargeError, TooSlowError, WrongTypeError
from calotype.serve.http.errors import error_response
from calotype.serve.http.json_shape import check_shape
from calotype.serve.settings import ServeSettings, as_address, is_loopback
from calotype.spec.problems import shown

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Asked by machines that hold no key."""

JSON = "application/json"
MULTIPART = "multipart/form-data"


class _GoneError(Exception):
    """The client left before it had said everything."""


class Door:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, access: Access) -> None:
        self.app = app
        self._settings = settings
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it here."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            if scope["path"] not in OPEN_PATHS:
                scope.setdefault("state", {})["caller"] = self._access.caller(_token(headers))
            kind = _body_kind(headers)
            body = await self._body(headers, receive)
            if kind == JSON:
                check_shape(body, self._settings)
        except CalotypeError as error:
            await error_response(error)(scope, receive, send)
        except _GoneError:
            return
        else:
            await self.app(scope, _replayed(body, receive), send)

    def _check_host(self, headers: Headers) -> None:
        """A page of another site that had its name point here (DNS rebinding) still sends that name."""
        named = _host_of(headers.get("host", ""))
        if named in self._settings.allowed_hosts or named == self._settings.host:
            return
        # An address is no name that somebody could have pointed elsewhere.
        if is_loopback(named) or (as_address(named) and not self._settings.loopback_only):
            return
        raise ForbiddenError(
            f"{shown(named)} is not a name of this server; if it is meant to be, add it to `allowed_hosts`"
        )

    def _check_origin(self, headers: Headers) -> None:
        """A page of another site sends its own origin, or says that it is one."""
        origin = headers.get("origin")
        if origin is not None:
            known = urlsplit(origin).netloc == headers.get("host") and origin != "null"
            if not known and origin not in self._settings.allowed_origins:
                raise ForbiddenError(
                    f"pages of {shown(origin)} may not use this server; if they are meant to, add it to "
                    f"`allowed_origins`"
                )
        elif headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise ForbiddenError("pages of other sites may not use this server")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
            return b""
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > self._settings.largest_body_bytes:
            raise self._too_large(f"{length[:20]} bytes are announced")
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                return await self._read(receive)
        except TimeoutError:
            raise TooSlowError(
                f"the request was not there after {self._settings.body_timeout_s} seconds"
            ) from None

    async def _read(self, receive: Receive) -> bytes:
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._settings.largest_body_bytes:
                raise self._too_large(f"more than {self._settings.largest_body_bytes} bytes arrived")
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _too_large(self, what: str) -> TooLargeError:
        limit = self._settings.largest_body_bytes
        return TooLargeError(f"{what}, the limit of one request is {limit}; send smaller pictures")


def _body_kind(headers: Headers) -> str:
    """JSON or a form with files. Anything else is what a page of another site could send unasked."""
    if headers.get("content-encoding", "identity") != "identity":
        raise WrongTypeError("compressed bodies are not read here; send it without Content-Encoding")
    content_type = headers.get("content-type")
    if content_type is None:
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise WrongTypeError(f"a body needs a Content-Type; send {JSON} or {MULTIPART}")
        return ""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON, MULTIPART):
        raise WrongTypeError(f"{shown(kind)} is not read here; send {JSON} or {MULTIPART}")
    return kind


def _token(headers: Headers) -> str | None:
    return bearer_token(headers.get("authorization", "")) or headers.get("x-api-key")


def _host_of(header: str) -> str:
    """The host of a `Host` header, without its port and an IPv6 address's brackets."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return header


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more in one piece, then what else the connection says."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
