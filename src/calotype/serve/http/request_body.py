"""Bodies of requests: JSON, or a form with files, read into a checked model and described in the OpenAPI.

FastAPI could do both, but not one route with two kinds of body, and not with our words for what is wrong.
Knows nothing of what a body means.
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
    """A JSON body as a model; raises RequestError listing every problem."""
    return parsed(model, loads(await request.body(), reach.settings))


async def form_body(request: Request) -> tuple[dict[str, list[str]], dict[str, list[bytes]]]:
    """The fields and files of a form. Files may be sent as `name` or `name[]`, several times."""
    if not is_form(request):
        raise RequestError([Problem("body", f"is no form; send {MULTIPART}")])
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
    """Plain values as a model; raises RequestError listing every problem."""
    if not isinstance(values, dict):
        raise RequestError([Problem("body", "is not a JSON object")])
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(problems_of(model, error)) from None


def check_kinds(
    fields: Iterable[str], files: Iterable[str], *, texts: Iterable[str], pictures: Iterable[str]
) -> None:
    """Refuse pictures that came as text and texts that came as files: neither would be looked for there."""
    problems = [
        Problem(name, f"came as text, and is a picture; send it as a file, with curl as -F {name}=@FILE")
        for name in sorted({each.removesuffix("[]") for each in fields}.intersection(pictures))
    ]
    problems += [
        Problem(name, f"came as a file, and is text; send what it holds, with curl as -F '{name}=<FILE'")
        for name in sorted(set(files).intersection(texts))
    ]
    if problems:
        raise RequestError(problems)


def one_file(files: Mapping[str, list[bytes]], name: str) -> bytes | None:
    """The file of this name; two are refused."""
    found = files.get(name, [])
    if len(found) > 1:
        raise RequestError([Problem(name, f"{len(found)} files were sent, one is taken")])
    return found[0] if found else None


def from_base64(text: object, field: str) -> bytes:
    """The bytes of base64 text, as it is or as a data URL; in lines or in one."""
    if not isinstance(text, str):
        raise RequestError([Problem(field, f"{short_repr(text)} is not a picture; send it as base64")])
    text = "".join(text.split())
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError([Problem(field, f"is not base64 that can be read: {error}")]) from None


def as_base64(data: bytes) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def png_url(data: bytes) -> str:
    """A PNG file as a data URL."""
    return f"data:image/png;base64,{as_base64(data)}"


def described(
    *, as_json: type[BaseModel] | None = None, as_form: type[BaseModel] | None = None, required: bool = True
) -> dict[str, Any]:
    """`openapi_extra` of a route that reads such a body."""
    kinds = {JSON: as_json, MULTIPART: as_form}
    content = {
        kind: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        for kind, model in kinds.items()
        if model is not None
    }
    return {"requestBody": {"required": required, "content": content}}


def without_null(schema: dict[str, Any]) -> None:
    """`json_schema_extra` of a form: a field of a form is there or not, and never null."""
    for field in schema["properties"].values():
        kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            field.update(kinds[0])
            del field["anyOf"], field["default"]


def schemas(models: list[type[BaseModel]]) -> dict[str, Any]:
    """What `described` refers to."""
    _, found = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    return dict(found["$defs"])
