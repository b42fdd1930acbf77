"""What stands before every route: whose server is asked for, from which page, by whom, with how large a body.

Nothing of a body is read before its sender is known, and nothing of it is believed before it was read within
its limits. Knows nothing of routes but which are open to anybody.
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
"""Asked by machines that hold no key."""
LOGIN_ROUTE = ("POST", "/calotype/session")
"""Where a browser shows its key."""
PLAIN_POSTS = frozenset(
    f"{prefix}{path}"
    for prefix in ("", "/api")
    for path in ("/prompt", "/queue", "/history", "/interrupt", "/free")
)
"""ComfyUI's clients send JSON here without saying so; pages of other sites are refused by their origin."""
_UNSAID = ("", "application/x-www-form-urlencoded")
"""What Python's own client says of a body when nobody told it what it is."""

MAX_UNAUTHENTICATED_BYTES = 64 * 1024
"""Bytes of a request to what is open to all: room for a key, and none to keep others out by."""

JSON = "application/json"
MULTIPART = "multipart/form-data"


_CHARSET = re.compile(r"(?:^|;)\s*charset\s*=\s*\"?([^\s;\"]*)")
_UTF_8 = ("utf-8", "utf8", "us-ascii")


class _ClientDisconnectError(Exception):
    """The client left before it had said everything."""


@dataclass
class _BytesInFlight:
    """What one request has in memory, and its place among the requests in service."""

    bytes: int = 0
    client: str | None = None
    """Who shares memory with others; None where that is not known, or there is one client alone."""
    place: ExitStack = field(default_factory=ExitStack)
    """Among the requests of its client."""


class SecurityMiddleware:
    """An ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        access: Access,
        serves_page: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`serves_page`: which addresses are the page's own files, which anybody may have."""
        self.app, self._serves_page = app, serves_page
        self._settings = settings
        self._access = access
        self._hosts = {settings.host.lower(), *(name.lower() for name in settings.allowed_hosts)}
        self._in_flight = 0
        self._of_clients: Counter[str] = Counter()
        """What is in flight, by client."""
        self._shares = ClientShares(settings.most_connections)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it here."""
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        held = _BytesInFlight()
        try:
            body = await self._let_in(scope, receive, held)
        except CalotypeError as error:
            await error_response(error)(scope, receive, send)
        except _ClientDisconnectError:
            return
        else:
            await self.app(scope, _replayed(body, receive), send)
        finally:
            self._count(held, -held.bytes)
            held.place.close()

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a socket through, or answer why not as to any other request."""
        headers = Headers(scope=scope)
        with ExitStack() as place:
            try:
                self._check_host(headers)
                self._check_origin(headers)
                place.enter_context(self._identify(headers, scope))
            except CalotypeError as error:
                await self._refuse_socket(error, scope, receive, send)
                return
            await self.app(scope, receive, send)

    @staticmethod
    async def _refuse_socket(error: CalotypeError, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if "websocket.http.response" in scope.get("extensions", {}):
            await error_response(error)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _identify(self, headers: Headers, scope: Scope) -> AbstractContextManager[None]:
        """Find the client of a request, which has to take this place among its client's requests."""
        visit = Session(self._access, _token(headers, scope))
        scope.setdefault("state", {})["visit"] = visit
        host = (scope.get("client") or ("",))[0]
        return self._shares.place(share_of(visit.caller, host))

    async def _let_in(self, scope: Scope, receive: Receive, held: _BytesInFlight) -> bytes:
        """The body of a request that may pass."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_origin(headers)
        most = self._settings.largest_body_bytes
        if self._is_open(scope):
            most = min(most, MAX_UNAUTHENTICATED_BYTES)
        else:
            held.place.enter_context(self._identify(headers, scope))
            caller = scope["state"]["visit"].caller
            held.client = caller.name if caller.name != LOCAL else None
        kind = _body_kind(headers, _UNSAID if scope["path"] in PLAIN_POSTS else ())
        body = await self._body(headers, receive, held, most)
        if kind == JSON:
            check_shape(body, self._settings)
        return body

    def _is_open(self, scope: Scope) -> bool:
        path, method = scope["path"], scope["method"]
        if path in OPEN_PATHS or (method, path) == LOGIN_ROUTE:
            return True
        return method == "GET" and self._serves_page(path)

    def _check_host(self, headers: Headers) -> None:
        """A page of another site that had its name point here (DNS rebinding) still sends that name."""
        named = _host_of(headers.get("host", ""))
        if named in self._hosts:
            return
        # An address is no name that somebody could have pointed elsewhere.
        if is_loopback(named) or (as_address(named) and not self._settings.loopback_only):
            return
        raise ForbiddenError(
            f"{short_repr(named)} is not a name of this server; if it is one, add it to `allowed_hosts`"
        )

    def _check_origin(self, headers: Headers) -> None:
        """A page of another site sends its own origin, or says that it is one."""
        origin = headers.get("origin")
        if origin is not None:
            ours = {f"{scheme}://{headers.get('host')}" for scheme in ("http", "https")}
            if origin not in ours | set(self._settings.allowed_origins):
                raise ForbiddenError(
                    f"pages of {short_repr(origin)} may not use this server; if they are meant to, add it to "
                    f"`allowed_origins`"
                )
        elif headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise ForbiddenError("pages of other sites may not use this server")

    async def _body(self, headers: Headers, receive: Receive, held: _BytesInFlight, most: int) -> bytes:
        if _has_none(headers):
            return b""
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > most:
            raise _too_large(f"{length[:20]} bytes are announced", most)
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                return await self._read(receive, held, most)
        except TimeoutError:
            raise TooSlowError(
                f"the request was not there after {self._settings.body_timeout_s} seconds"
            ) from None

    async def _read(self, receive: Receive, held: _BytesInFlight, most: int) -> bytes:
        pieces = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientDisconnectError
            pieces.append(message.get("body", b""))
            self._count(held, len(pieces[-1]))
            if held.bytes > most:
                raise _too_large(f"more than {most} bytes arrived", most)
            if self._in_flight > self._settings.most_bytes_in_flight:
                raise UnavailableError(
                    f"requests of {self._settings.most_bytes_in_flight} bytes are being served, which is the "
                    f"limit; try again later"
                )
            self._check_share(held)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _count(self, held: _BytesInFlight, size: int) -> None:
        held.bytes += size
        self._in_flight += size
        if held.client is not None:
            self._of_clients[held.client] += size
            # A counter of zero would stay for every client that was ever here.
            if not self._of_clients[held.client]:
                del self._of_clients[held.client]

    def _check_share(self, held: _BytesInFlight) -> None:
        """Refuse a client that has more in flight than is free; one request of each client may be larger."""
        own = 0 if held.client is None else self._of_clients[held.client]
        free = self._settings.most_bytes_in_flight - self._in_flight
        if own > max(free, held.bytes):
            raise UnavailableError(
                f"requests of {held.client!r} of {own} bytes are being served and {free} bytes of "
                f"{self._settings.most_bytes_in_flight} are free: one client gets no more than is free for "
                f"others; try again when one is answered"
            )


def _too_large(what: str, most: int) -> TooLargeError:
    return TooLargeError(f"{what}, the limit of one request is {most}; send smaller pictures")


def _has_none(headers: Headers) -> bool:
    """Whether a request is without a body."""
    return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"


def _body_kind(headers: Headers, as_json: Sequence[str]) -> str:
    """JSON or a form with files. Anything else is what a page of another site could send unasked.

    `as_json`: what else may be said, or left unsaid, of a body that is JSON.
    """
    if _has_none(headers):
        # Some clients say a type of whatever they send, even of nothing.
        return ""
    if headers.get("content-encoding", "identity") != "identity":
        raise WrongTypeError("compressed bodies are not read here; send it without Content-Encoding")
    content_type = headers.get("content-type")
    if content_type is None and "" not in as_json:
        raise WrongTypeError(f"a body needs a Content-Type; send {JSON} or {MULTIPART}")
    kind, _, about = (content_type or "").lower().partition(";")
    kind = kind.strip()
    if kind in as_json:
        return JSON
    if kind not in (JSON, MULTIPART):
        raise WrongTypeError(f"{short_repr(kind)} is not read here; send {JSON} or {MULTIPART}")
    said = _CHARSET.search(about)
    if said is not None and said[1] not in _UTF_8:
        raise WrongTypeError(f"charset {short_repr(said[1])} is not read here; send UTF-8")
    return kind


def _token(headers: Headers, scope: Scope) -> str | None:
    """In a header or, from a browser's own requests, in the cookie that it was given for its key."""
    said = bearer_token(headers.get("authorization", "")) or headers.get("x-api-key")
    return said or cookie_parser(headers.get("cookie", "")).get(cookie_name(scope))


def cookie_name(scope: Scope) -> str:
    """Browsers do not tell ports of a host apart; two deployments on one machine must be."""
    return f"calotype-{(scope.get('server') or ('', 0))[1]}"


def _host_of(header: str) -> str:
    """The host of a `FakeHost` header, without its port and an IPv6 address's brackets."""
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
