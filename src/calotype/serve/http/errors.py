"""What went wrong, as an answer: one body for all routes, in the form OpenAI's clients read.

Knows nothing of routes.
"""

from __future__ import annotations

import json
import logging
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from calotype.core.errors import CalotypeError, CancelledError, Problem, RequestError
from calotype.core.redaction import redact_paths
from calotype.serve.errors import ErrorKind, JobFailedError, kind_of
from calotype.serve.log_format import request_id
from calotype.serve.service import DamagedPictureError, QueueFullError
from calotype.spec.validation_errors import short_repr

_log = logging.getLogger(__name__)

STATUS: dict[ErrorKind, int] = {
    "bad_request": 400,
    "unknown_client": 401,
    "forbidden": 403,
    "not_found": 404,
    "wrong_method": 405,
    "too_slow": 408,
    "cancelled": 409,
    "too_large": 413,
    "wrong_type": 415,
    # Understood and well formed, but not on this machine; 413 would blame the body.
    "does_not_fit": 422,
    "bad_model_file": 422,
    "queue_full": 429,
    # Read by nobody but the access log.
    "client_left": 499,
    "internal": 500,
    "damaged": 500,
    "unavailable": 503,
    "worker_lost": 503,
    "deadline": 504,
}
_KINDS_OF_STATUS: dict[int, ErrorKind] = {
    400: "bad_request",
    404: "not_found",
    405: "wrong_method",
    413: "too_large",
}
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_NOT_AGAIN = {"x-should-retry": "false"}
"""OpenAI's clients ask again after 409 and 5xx by themselves, which makes another job of one that ended."""
MAX_VALUE_LENGTH = 200


class ProblemBody(BaseModel):
    """One thing wrong with a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    field: str
    """Where: the field's name, with dots between levels."""
    rule: str
    """What is wrong with it, the limit and the fix."""
    value: Any = None
    """What was sent, where it is short."""


class ErrorDetail(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    message: str
    """For people: the value, the limit and the fix."""
    type: str
    """OpenAI's word for the kind of error."""
    code: str
    """Our word: bad_request, not_found, does_not_fit, queue_full, unavailable, deadline..."""
    param: str | None
    """The first field that is wrong."""
    problems: list[ProblemBody]
    """Every field that is wrong."""
    request_id: str
    """To be found in the server's log."""


class ErrorBody(BaseModel):
    """The answer to anything that went wrong."""

    error: ErrorDetail


_DESCRIBED: dict[int | str, str] = {
    400: "A request that cannot be served; every problem is listed.",
    401: "No API key, or one that is not known.",
    404: "No such job, picture or model.",
    413: "More bytes than one request may have.",
    422: "It needs more memory than there is, or a model that is broken.",
    429: "The queue is full or a quota used up; see Retry-After.",
    503: "The deployment drains, or lost the worker.",
    "default": "Anything else that went wrong.",
}
_CONTENT = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": _CONTENT} for status, words in _DESCRIBED.items()
}
BODIES: list[type[BaseModel]] = [ErrorBody]


def error_body(error: CalotypeError) -> dict[str, Any]:
    """An error as plain values."""
    kind = kind_of(error)
    problems = error.problems if isinstance(error, RequestError) else ()
    return _body(STATUS[kind], kind, redact_paths(error), problems)


def error_response(error: CalotypeError) -> Response:
    """The answer to an error."""
    status, headers = STATUS[kind_of(error)], {}
    if isinstance(error, JobFailedError | CancelledError | DamagedPictureError):
        headers.update(_NOT_AGAIN)
    if isinstance(error, QueueFullError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(error), status, headers)


def bug_body() -> dict[str, Any]:
    """A mistake of ours as plain values: nothing of it but where to find it in the log."""
    return _body(500, "internal", f"something went wrong here; the log has it under request {request_id()}")


def bug_response() -> Response:
    """The answer to a mistake of ours."""
    return json_response(bug_body(), 500, _NOT_AGAIN)


def json_response(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON that any string can be part of: half a character in an error's value must not be another."""
    return Response(json.dumps(values), status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Answer everything that routes raise."""
    app.add_exception_handler(CalotypeError, _calotype_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)


async def _calotype_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, CalotypeError)
    return error_response(error)


async def _validation_error(_: Request, error: Exception) -> Response:
    """What FastAPI found wrong with the address or its parameters."""
    assert isinstance(error, RequestValidationError)
    found = [
        Problem(
            ".".join(str(part) for part in one["loc"][1:]), f"{short_repr(one.get('input'))}: {one['msg']}"
        )
        for one in error.errors()
    ]
    return error_response(RequestError(found))


async def _http_exception(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself."""
    assert isinstance(error, HTTPException)
    kind = _KINDS_OF_STATUS.get(error.status_code, "bad_request")
    message = str(error.detail)
    if kind == "not_found":
        message = f"there is no {short_repr(request.url.path)} here; see /openapi.json"
    headers = dict(error.headers or {})
    if kind == "wrong_method":
        # Starlette names those of the first route of this path alone.
        headers["Allow"] = ", ".join(_methods(request))
    return json_response(_body(error.status_code, kind, message), error.status_code, headers)


def _methods(request: Request) -> list[str]:
    """What may be done with an address."""
    routes = iter_route_contexts(request.app.routes)
    known = [route for route in routes if route.path_regex.match(request.url.path)]
    methods = {method for route in known for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _body(status: int, kind: ErrorKind, message: str, problems: tuple[Problem, ...] = ()) -> dict[str, Any]:
    fallback = "server_error" if status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": message,
            "type": _OPENAI_TYPES.get(status, fallback),
            "code": kind,
            "param": problems[0].field if problems else None,
            "problems": [
                {"field": problem.field, "rule": problem.message, "value": _plain(problem.value)}
                for problem in problems
            ],
            "request_id": request_id(),
        }
    }


def _plain(value: object) -> object:
    """A value that JSON has and nobody minds reading."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_LENGTH else f"{value[:MAX_VALUE_LENGTH]}…"
    return value if value is None or isinstance(value, bool | int | float) else short_repr(value)
