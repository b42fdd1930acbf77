"""Middleware that checks host, origin, API key and size of the body before every route.

It reads no body before it knows the client, and it passes no body on before it has read it within the limits.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calotype.core.errors import CalotypeError
from calotype.serve.auth import LOCAL, Access, ForbiddenError, Session, bearer_token
from calotype.serve.client_shares import ClientShares, share_of
from calotype.serve.errors import TooLargeError, TooSlowError, WrongTypeError
from calotype.serve.http.errors import error_response
from calotype.serve.http.json_limits import check_shape
from calotype.serve.service import UnavailableError
from calotype.serve.settings import ServeSettings, as_address, is_loopback
from calotype.spec.validation_errors import short_repr

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes call these without a key."""
LOGIN_ROUTE = ("POST", "/calotype/session")
"""A browser sends its key here."""
PLAIN_POSTS = frozenset(
    f"{prefix}{path}"
    for prefix in ("", "/api")
    for path in ("/prompt", "/queue", "/history", "/interrupt", "/free")
)
"""ComfyUI's clients send JSON here without a Content-Type; the origin check rejects pages of other sites."""
_UNDECLARED_TYPES = ("", "application/x-www-form-urlencoded")
"""The types that Python's urllib sends by default."""

MAX_UNAUTHENTICATED_BYTES = 64 * 1024
"""Size limit of a request without a key: enough for a key, too little to exhaust memory."""

JSON = "application/json"
MULTIPART = "multipart/form-data"


_CHARSET = re.compile(r"(?:^|;)\s*charset\s*=\s*\"?([^\s;\"]*)")
_UTF_8 = ("utf-8", "utf8", "us-ascii")


class _ClientDisconnectError(Exception):
    """The client disconnected before it had sent the whole request."""


@dataclass
class _BytesInFlight:
    """The bytes of one request in memory, and its slot among the client's requests."""

    bytes: int = 0
    client: str | None = None
    """The client whose share of memory counts; None if it is unknown or the only one."""
    place: ExitStack = field(default_factory=ExitStack)
    """Releases the slot."""


class SecurityMiddleware:
    """Authorizes each request and reads its body before the application sees it."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        access: Access,
        serves_page: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`serves_page` tells which paths are files of the page, which need no key."""
        self.app, self._serves_page = app, serves_page
        self._settings = settings
        self._access = access
        self._hosts = {settings.host.lower(), *(name.lower() for name in settings.allowed_hosts)}
        self._in_flight = 0
        self._of_clients: Counter[str] = Counter()
        """Bytes in flight, by client."""
        self._shares = ClientShares(settings.most_connections)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        in_flight = _BytesInFlight()
        try:
            body = await self._authorize_and_read(scope, receive, in_flight)
        except CalotypeError as error:
            await error_response(error)(scope, receive, send)
        except _ClientDisconnectError:
            return
        else:
            await self.app(scope, _replay_body(body, receive), send)
        finally:
            self._count(in_flight, -in_flight.bytes)
            in_flight.place.close()

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a WebSocket on, or reject it with an HTTP response."""
        headers = Headers(scope=scope)
        with ExitStack() as place:
            try:
                self._check_host(headers)
                self._check_origin(headers)
                place.enter_context(self._identify(headers, scope))
            except CalotypeError as error:
                await self._reject_socket(error, scope, receive, send)
                return
            await self.app(scope, receive, send)

    @staticmethod
    async def _reject_socket(error: CalotypeError, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if "websocket.http.response" in scope.get("extensions", {}):
            await error_response(error)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _identify(self, headers: Headers, scope: Scope) -> AbstractContextManager[None]:
        """Authenticate a request; the returned context holds a slot among its client's requests."""
        visit = Session(self._access, _token(headers, scope))
        scope.setdefault("state", {})["visit"] = visit
        host = (scope.get("client") or ("",))[0]
        return self._shares.place(share_of(visit.caller, host))

    async def _authorize_and_read(self, scope: Scope, receive: Receive, in_flight: _BytesInFlight) -> bytes:
        """Authorize a request and return its body."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_origin(headers)
        max_bytes = self._settings.largest_body_bytes
        if self._is_open(scope):
            max_bytes = min(max_bytes, MAX_UNAUTHENTICATED_BYTES)
        else:
            in_flight.place.enter_context(self._identify(headers, scope))
            caller = scope["state"]["visit"].caller
            in_flight.client = caller.name if caller.name != LOCAL else None
        kind = _body_kind(headers, _UNDECLARED_TYPES if scope["path"] in PLAIN_POSTS else ())
        body = await self._body(headers, receive, in_flight, max_bytes)
        if kind == JSON:
            check_shape(body, self._settings)
        return body

    def _is_open(self, scope: Scope) -> bool:
        path, method = scope["path"], scope["method"]
        if path in OPEN_PATHS or (method, path) == LOGIN_ROUTE:
            return True
        return method == "GET" and self._serves_page(path)

    def _check_host(self, headers: Headers) -> None:
        """Reject DNS rebinding: a page of another site that resolves to this host still sends its name."""
        host = _host_of(headers.get("host", ""))
        if host in self._hosts:
            return
        # DNS rebinding needs a name; an IP address cannot be redirected.
        if is_loopback(host) or (as_address(host) and not self._settings.loopback_only):
            return
        raise ForbiddenError(
            f"{short_repr(host)} is not a name of this server; if it is one, add it to `allowed_hosts`"
        )

    def _check_origin(self, headers: Headers) -> None:
        """Reject pages of other sites: browsers send their origin or mark the request as cross-site."""
        origin = headers.get("origin")
        if origin is not None:
            ours = {f"{scheme}://{headers.get('host')}" for scheme in ("http", "https")}
            if origin not in ours | set(self._settings.allowed_origins):
                raise ForbiddenError(
                    f"pages of {short_repr(origin)} may not use this server; to allow them, add it to "
                    f"`allowed_origins`"
                )
        elif headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise ForbiddenError("pages of other sites may not use this server")

    async def _body(
        self, headers: Headers, receive: Receive, in_flight: _BytesInFlight, max_bytes: int
    ) -> bytes:
        if _has_no_body(headers):
            return b""
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > max_bytes:
            raise _too_large(f"Content-Length is {length[:20]} bytes", max_bytes)
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                return await self._read(receive, in_flight, max_bytes)
        except TimeoutError:
            raise TooSlowError(
                f"the request body was not complete after {self._settings.body_timeout_s} seconds"
            ) from None

    async def _read(self, receive: Receive, in_flight: _BytesInFlight, max_bytes: int) -> bytes:
        chunks = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientDisconnectError
            chunks.append(message.get("body", b""))
            self._count(in_flight, len(chunks[-1]))
            if in_flight.bytes > max_bytes:
                raise _too_large(f"more than {max_bytes} bytes arrived", max_bytes)
            if self._in_flight > self._settings.most_bytes_in_flight:
                raise UnavailableError(
                    f"requests in service have {self._settings.most_bytes_in_flight} bytes, which is the "
                    f"limit; try again later"
                )
            self._check_share(in_flight)
            if not message.get("more_body"):
                return b"".join(chunks)

    def _count(self, in_flight: _BytesInFlight, size: int) -> None:
        in_flight.bytes += size
        self._in_flight += size
        if in_flight.client is not None:
            self._of_clients[in_flight.client] += size
            # Delete zero counts, or the counter would grow with every client.
            if not self._of_clients[in_flight.client]:
                del self._of_clients[in_flight.client]

    def _check_share(self, in_flight: _BytesInFlight) -> None:
        """Reject a client with more bytes in flight than are free; a single request may be larger."""
        own = 0 if in_flight.client is None else self._of_clients[in_flight.client]
        free = self._settings.most_bytes_in_flight - self._in_flight
        if own > max(free, in_flight.bytes):
            raise UnavailableError(
                f"requests of {in_flight.client!r} in service have {own} bytes, and {free} of "
                f"{self._settings.most_bytes_in_flight} bytes are free; one client may use no more than is "
                f"free for others; try again when one of your requests has ended"
            )


def _too_large(what: str, max_bytes: int) -> TooLargeError:
    return TooLargeError(f"{what}, the limit of one request is {max_bytes}; send smaller images")


def _has_no_body(headers: Headers) -> bool:
    """Whether a request has no body."""
    return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"


def _body_kind(headers: Headers, as_json: Sequence[str]) -> str:
    """Return the media type: JSON or a form. A page of another site could send others without preflight.

    `as_json` lists further types that count as JSON; "" means no Content-Type.
    """
    if _has_no_body(headers):
        # Some clients send a Content-Type even without a body.
        return ""
    if headers.get("content-encoding", "identity") != "identity":
        raise WrongTypeError("compressed bodies are not supported; send it without Content-Encoding")
    content_type = headers.get("content-type")
    if content_type is None and "" not in as_json:
        raise WrongTypeError(f"a body needs a Content-Type; send {JSON} or {MULTIPART}")
    kind, _, parameters = (content_type or "").lower().partition(";")
    kind = kind.strip()
    if kind in as_json:
        return JSON
    if kind not in (JSON, MULTIPART):
        raise WrongTypeError(f"{short_repr(kind)} is not supported; send {JSON} or {MULTIPART}")
    charset = _CHARSET.search(parameters)
    if charset is not None and charset[1] not in _UTF_8:
        raise WrongTypeError(f"charset {short_repr(charset[1])} is not supported; send UTF-8")
    return kind


def _token(headers: Headers, scope: Scope) -> str | None:
    """Return the API key from a header or, for requests of a browser, from the session cookie."""
    key = bearer_token(headers.get("authorization", "")) or headers.get("x-api-key")
    return key or cookie_parser(headers.get("cookie", "")).get(cookie_name(scope))


def cookie_name(scope: Scope) -> str:
    """Return a name with the port: cookies ignore ports, but one host may run two deployments."""
    return f"calotype-{(scope.get('server') or ('', 0))[1]}"


def _host_of(header: str) -> str:
    """Return the host of a `Host` header, without the port and the brackets of an IPv6 address."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return header


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body in one message, then the connection's messages."""
    sent = False

    async def receive_body() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body
