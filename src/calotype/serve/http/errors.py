"""Turns errors into HTTP responses: one body for all routes, in the form that OpenAI's clients read."""

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
    # Only the access log sees this one.
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
_NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients retry after 409 and 5xx, which would submit an ended job again."""
MAX_VALUE_LENGTH = 200


class ProblemBody(BaseModel):
    """One thing wrong with a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    field: str
    """The name of the field, with dots between levels."""
    rule: str
    """The fault, the limit and the fix."""
    value: Any = None
    """The value sent, if it is short."""


class ErrorDetail(BaseModel):
    """The cause of an error."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    message: str
    """Human-readable: the value, the limit and the fix."""
    type: str
    """The kind of error in OpenAI's terms."""
    code: str
    """Calotype's kind of error: bad_request, not_found, does_not_fit, queue_full, unavailable, deadline..."""
    param: str | None
    """The first invalid field."""
    problems: list[ProblemBody]
    """Every invalid field."""
    request_id: str
    """Identifies the request in the server's log."""


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


_DESCRIPTIONS: dict[int | str, str] = {
    400: "The request is invalid; `problems` lists every fault.",
    401: "The API key is missing or unknown.",
    404: "No such job, image or model.",
    413: "The request is larger than the limit.",
    422: "The request needs more memory than available, or the model file is broken.",
    429: "The queue is full or a quota is used up; see Retry-After.",
    503: "The deployment is draining, or the worker died.",
    "default": "Any other error.",
}
_CONTENT = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "content": _CONTENT} for status, description in _DESCRIPTIONS.items()
}
BODIES: list[type[BaseModel]] = [ErrorBody]


def error_body(error: CalotypeError) -> dict[str, Any]:
    """Return the response body of an error."""
    kind = kind_of(error)
    problems = error.problems if isinstance(error, RequestError) else ()
    return _body(STATUS[kind], kind, redact_paths(error), problems)


def error_response(error: CalotypeError) -> Response:
    """Return the response to an error."""
    status, headers = STATUS[kind_of(error)], {}
    if isinstance(error, JobFailedError | CancelledError | DamagedPictureError):
        headers.update(_NO_RETRY)
    if isinstance(error, QueueFullError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(error), status, headers)


def bug_body() -> dict[str, Any]:
    """Return the body for an internal error: only the request id that finds it in the log."""
    return _body(500, "internal", f"internal error; the server's log has it under request {request_id()}")


def bug_response() -> Response:
    """Return the response to an internal error."""
    return json_response(bug_body(), 500, _NO_RETRY)


def json_response(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Encode JSON as ASCII: a lone surrogate in an error's value must not raise another error."""
    return Response(json.dumps(values), status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Register handlers for every exception that routes raise."""
    app.add_exception_handler(CalotypeError, _calotype_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)


async def _calotype_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, CalotypeError)
    return error_response(error)


async def _validation_error(_: Request, error: Exception) -> Response:
    """Handle FastAPI's errors in the path or its parameters."""
    assert isinstance(error, RequestValidationError)
    problems = [
        Problem(
            ".".join(str(part) for part in item["loc"][1:]),
            f"{short_repr(item.get('input'))}: {item['msg']}",
        )
        for item in error.errors()
    ]
    return error_response(RequestError(problems))


async def _http_exception(request: Request, error: Exception) -> Response:
    """Handle the errors that Starlette raises itself."""
    assert isinstance(error, HTTPException)
    kind = _KINDS_OF_STATUS.get(error.status_code, "bad_request")
    message = str(error.detail)
    if kind == "not_found":
        message = f"no route {short_repr(request.url.path)}; see /openapi.json"
    headers = dict(error.headers or {})
    if kind == "wrong_method":
        # Starlette lists only the methods of the first route with this path.
        headers["Allow"] = ", ".join(_methods(request))
    return json_response(_body(error.status_code, kind, message), error.status_code, headers)


def _methods(request: Request) -> list[str]:
    """Return all methods of the request's path."""
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
                {"field": problem.field, "rule": problem.message, "value": _json_value(problem.value)}
                for problem in problems
            ],
            "request_id": request_id(),
        }
    }


def _json_value(value: object) -> object:
    """Convert a value to JSON and shorten it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_LENGTH else f"{value[:MAX_VALUE_LENGTH]}…"
    return value if value is None or isinstance(value, bool | int | float) else short_repr(value)
