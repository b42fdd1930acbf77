"""Reads request bodies (JSON or a form with files) into models, and describes them in the OpenAPI document.

FastAPI supports neither two kinds of body in one route nor our error messages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.datastructures import UploadFile

from calotype.core.errors import Problem, RequestError
from calotype.serve.http.dependencies import AppState
from calotype.serve.http.json_limits import loads
from calotype.serve.http.middleware.security import JSON, MULTIPART
from calotype.spec.validation_errors import problems_of, short_repr

MAX_FILES = 16
MAX_FIELDS = 100

Body = TypeVar("Body", bound=BaseModel)


async def json_body(request: Request, model: type[Body], reach: AppState) -> Body:
    """Parse a JSON body into a model; raises RequestError with every problem."""
    return parsed(model, loads(await request.body(), reach.settings))


async def form_body(request: Request) -> tuple[dict[str, list[str]], dict[str, list[bytes]]]:
    """Return the fields and files of a form. A file may be sent repeatedly, as `name` or `name[]`."""
    if not is_form(request):
        raise RequestError([Problem("body", f"is not a form; send {MULTIPART}")])
    values: dict[str, list[str]] = {}
    files: dict[str, list[bytes]] = {}
    async with request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                files.setdefault(name.removesuffix("[]"), []).append(await value.read())
            else:
                values.setdefault(name, []).append(value)
    return values, files


def is_form(request: Request) -> bool:
    """Whether the body is a form with files."""
    return request.headers.get("content-type", "").lower().startswith(MULTIPART)


def parsed(model: type[Body], values: object) -> Body:
    """Validate plain values as a model; raises RequestError with every problem."""
    if not isinstance(values, dict):
        raise RequestError([Problem("body", "is not a JSON object")])
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(problems_of(model, error)) from None


def check_kinds(
    fields: Iterable[str], files: Iterable[str], *, texts: Iterable[str], pictures: Iterable[str]
) -> None:
    """Reject images sent as text and texts sent as files: both would be silently ignored."""
    problems = [
        Problem(name, f"is an image and was sent as text; send it as a file, with curl as -F {name}=@FILE")
        for name in sorted({field.removesuffix("[]") for field in fields}.intersection(pictures))
    ]
    problems += [
        Problem(name, f"is text and was sent as a file; send its contents, with curl as -F '{name}=<FILE'")
        for name in sorted(set(files).intersection(texts))
    ]
    if problems:
        raise RequestError(problems)


def one_file(files: Mapping[str, list[bytes]], name: str) -> bytes | None:
    """Return the file of this name, or None; reject more than one."""
    matches = files.get(name, [])
    if len(matches) > 1:
        raise RequestError([Problem(name, f"{len(matches)} files were sent, the limit is 1; send one")])
    return matches[0] if matches else None


def from_base64(text: object, field: str) -> bytes:
    """Decode base64 text or a data URL; whitespace is ignored."""
    if not isinstance(text, str):
        raise RequestError([Problem(field, f"{short_repr(text)} is not an image; send it as base64")])
    text = "".join(text.split())
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError([Problem(field, f"is not valid base64: {error}")]) from None


def as_base64(data: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def png_url(data: bytes) -> str:
    """Encode a PNG file as a data URL."""
    return f"data:image/png;base64,{as_base64(data)}"


def described(
    *, as_json: type[BaseModel] | None = None, as_form: type[BaseModel] | None = None, required: bool = True
) -> dict[str, Any]:
    """Return `openapi_extra` for a route with these bodies."""
    kinds = {JSON: as_json, MULTIPART: as_form}
    content = {
        kind: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        for kind, model in kinds.items()
        if model is not None
    }
    return {"requestBody": {"required": required, "content": content}}


def without_null(schema: dict[str, Any]) -> None:
    """`json_schema_extra` of a form: a form field is present or absent, never null."""
    for field in schema["properties"].values():
        kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            field.update(kinds[0])
            del field["anyOf"], field["default"]


def schemas(models: list[type[BaseModel]]) -> dict[str, Any]:
    """Return the schemas that `described` refers to."""
    _, document = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    return dict(document["$defs"])
