"""The interceptor before every method: access log, authentication, and errors as status codes.

It reads no message before it knows the client, and each message must arrive within a time limit. A client
without a key therefore ties up no memory.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.core.redaction import redact_paths
from calotype.serve.auth import Access, Client, Session, UnknownClientError, bearer_token
from calotype.serve.client_shares import ClientShares, address_group, share_of
from calotype.serve.errors import ErrorKind, TooSlowError, kind_of
from calotype.serve.grpc.converters import problems_message, status_text
from calotype.serve.log_format import REQUEST_ID, access_log, begin_request
from calotype.serve.service import QueueFullError, UnavailableError

OPEN_SERVICE = "/grpc.health.v1.Health/"
"""Probes call it without a key."""

CODES: dict[ErrorKind, grpc.StatusCode] = {
    "bad_request": grpc.StatusCode.INVALID_ARGUMENT,
    "unknown_client": grpc.StatusCode.UNAUTHENTICATED,
    "forbidden": grpc.StatusCode.PERMISSION_DENIED,
    "not_found": grpc.StatusCode.NOT_FOUND,
    # RESOURCE_EXHAUSTED would suggest a retry, which does not help here.
    "does_not_fit": grpc.StatusCode.FAILED_PRECONDITION,
    "bad_model_file": grpc.StatusCode.FAILED_PRECONDITION,
    "queue_full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    "worker_lost": grpc.StatusCode.UNAVAILABLE,
    "cancelled": grpc.StatusCode.CANCELLED,
    "deadline": grpc.StatusCode.DEADLINE_EXCEEDED,
    "too_slow": grpc.StatusCode.DEADLINE_EXCEEDED,
    "internal": grpc.StatusCode.INTERNAL,
    "damaged": grpc.StatusCode.DATA_LOSS,
}
UNAUTHENTICATED_SHARE = 10
"""At most one in this many concurrent calls may lack a key, because such calls can last indefinitely."""
_caller: ContextVar[Client] = ContextVar("caller")
_log = logging.getLogger(__name__)

# Generic only for the type checker.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"


def client_of() -> Client:
    """Return the client of the current call."""
    return _caller.get()


@dataclass(frozen=True)
class _Shares:
    """The concurrent calls of clients with and without a key."""

    authenticated: ClientShares
    unauthenticated: ClientShares


def room_for_anybody(most_calls: int) -> int:
    """Return the limit of concurrent calls without a key."""
    return max(1, most_calls // UNAUTHENTICATED_SHARE)


def address_of(peer: str) -> str:
    """Return the address of a gRPC peer: `ipv4:192.0.2.1:50000`, `ipv6:%5B2001:db8::1%5D:50000`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method of every service."""

    def __init__(self, access: Access, patience_s: float, most_calls: int) -> None:
        """`patience_s` limits the time for a message to arrive, `most_calls` the concurrent calls."""
        self._access, self._patience_s = access, patience_s
        self._shares = _Shares(ClientShares(most_calls), ClientShares(room_for_anybody(most_calls)))

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the wrapped handler."""
        handler = await continuation(handler_call_details)
        guarded = _Guarded(self._access, handler_call_details, self._patience_s, self._shares)
        return guarded.around(handler) if handler else None


class _Guarded:
    """One call. It does not use its context after the call, when gRPC may have freed it."""

    def __init__(
        self,
        access: Access,
        details: grpc.HandlerCallDetails,
        patience_s: float,
        shares: _Shares,
    ) -> None:
        self._access, self._patience_s, self._shares = access, patience_s, shares
        self._method = str(details.method)
        self._metadata = {str(key): value for key, value in details.invocation_metadata or ()}
        self._status = "OK"
        self._session: Session | None = None

    def around(self, handler: Handler) -> Handler:
        """Wrap a handler with authentication, error handling and logging."""
        behaviour = _behaviour(handler)

        async def streamed(messages: Any, context: Context) -> AsyncIterator[Any]:
            async with self._call(context):
                request = await self._request(handler, messages)
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        self._check_session()
                        yield response

        async def answered(messages: Any, context: Context) -> Any:
            async with self._call(context):
                return await behaviour(await self._request(handler, messages), context)

        # A streaming method may also be a coroutine that writes to the context.
        return _handler(handler, streamed if inspect.isasyncgenfunction(behaviour) else answered)

    async def _request(self, handler: Handler, messages: Any) -> Any:
        """Return the request message, or the iterator for a streaming request."""
        if handler.request_streaming:
            return messages
        try:
            async with asyncio.timeout(self._patience_s):
                return await anext(aiter(messages))
        except TimeoutError:
            raise TooSlowError(f"no message arrived within {self._patience_s:g} seconds") from None
        except StopAsyncIteration:
            raise RequestError([Problem("message", "is missing; this method needs one")]) from None

    @asynccontextmanager
    async def _call(self, context: Context) -> AsyncIterator[None]:
        sent_id = self._metadata.get(REQUEST_ID)
        self._request_id = begin_request(sent_id if isinstance(sent_id, str) else None)
        began, peer = time.perf_counter(), context.peer()
        try:
            with self._authorize(address_of(peer)):
                yield
        except (asyncio.CancelledError, GeneratorExit):
            self._status = grpc.StatusCode.CANCELLED.name
            raise
        except grpc.aio.BaseError:
            # The method aborted the call itself.
            self._status = getattr(context.code(), "name", "UNKNOWN")
            raise
        except CalotypeError as error:
            code = CODES.get(kind_of(error), grpc.StatusCode.INVALID_ARGUMENT)
            await self._abort(context, code, status_text(redact_paths(error)), *_trailing(error))
        except Exception:
            _log.exception("a call failed with an internal error")
            message = f"internal error; the server's log has it under request {self._request_id}"
            await self._abort(context, grpc.StatusCode.INTERNAL, message)
        finally:
            self._log_call(peer, time.perf_counter() - began)

    @contextmanager
    def _authorize(self, host: str) -> Iterator[None]:
        if not self._method.startswith(OPEN_SERVICE):
            header = self._metadata.get("authorization", "")
            self._session = Session(self._access, bearer_token(header if isinstance(header, str) else ""))
            _caller.set(self._session.caller)
            with self._shares.authenticated.place(share_of(self._session.caller, host)):
                yield
            return
        with ExitStack() as place:
            try:
                place.enter_context(self._shares.unauthenticated.place(address_group(host)))
            except UnavailableError:
                message = "too many concurrent health checks; try again later"
                raise QueueFullError(message, retry_after_s=1) from None
            yield

    def _check_session(self) -> None:
        if self._session is not None and not self._session.is_valid():
            raise UnknownClientError(f"the API key of {self._session.caller.name!r} is no longer valid")

    async def _abort(
        self, context: Context, code: grpc.StatusCode, message: str, *trailing: tuple[str, str | bytes]
    ) -> None:
        self._status = code.name
        await context.abort(code, message, ((REQUEST_ID, self._request_id), *trailing))

    def _log_call(self, peer: str, seconds: float) -> None:
        client = _caller.get(None)
        values = {
            "request_id": self._request_id,
            "method": "gRPC",
            "path": self._method,
            "status": self._status,
            "seconds": round(seconds, 6),
            "client": client.name if client else None,
            "address": peer,
        }
        access_log.info("request", extra={"values": values})


def _trailing(error: CalotypeError) -> Iterator[tuple[str, str | bytes]]:
    if isinstance(error, RequestError):
        yield "calotype-problems-bin", problems_message(error).SerializeToString()
    if isinstance(error, QueueFullError):
        yield "retry-after", f"{error.retry_after_s:g}"


def _behaviour(handler: Handler) -> Any:
    behaviours = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    return next(behaviour for behaviour in behaviours if behaviour is not None)


def _handler(handler: Handler, behaviour: Any) -> Handler:
    """Return a handler with the same response type that reads messages itself, after authentication."""
    make: Any = (
        grpc.stream_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.stream_unary_rpc_method_handler
    )
    return make(behaviour, handler.request_deserializer, handler.response_serializer)
