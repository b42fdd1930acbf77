"""Parses plain values and input images into a validated submission."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import check_name
from calotype.engine.image_inputs import IN_MEMORY
from calotype.spec.job import Submission
from calotype.spec.validation_errors import problems_of


@dataclass(frozen=True)
class ParsedRequest:
    """A submission with its input image files."""

    submission: Submission
    image: bytes | None = None
    mask: bytes | None = None


def parse_submission(
    values: Mapping[str, Any], image: bytes | None = None, mask: bytes | None = None
) -> ParsedRequest:
    """Validate plain values and draw a seed if none is given; RequestError lists every problem."""
    request = values.get("request")
    problems = list(_bad_names(values, request))
    if isinstance(request, Mapping):
        values = {**values, "request": {**_seed_default(values), **request, **_image_references(image, mask)}}
        problems += _pictures_by_path(request)
    try:
        submission = Submission.model_validate(values)
    except ValidationError as error:
        problems += problems_of(Submission, error)
    if problems:
        raise RequestError(problems)
    return ParsedRequest(submission, image, mask)


def seed_for(idempotency_key: str | None) -> int:
    """A random seed; derived from the idempotency key if there is one, so that a retry is the same job."""
    if idempotency_key is None:
        return secrets.randbelow(2**32)
    digest = hashlib.sha256(idempotency_key.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:4])


@contextmanager
def rename_error_fields(names: Mapping[str, str]) -> Iterator[None]:
    """Rename fields in RequestErrors to the names that an interface uses."""
    try:
        yield
    except RequestError as error:
        fields = [problem.field.removeprefix("request.") for problem in error.problems]
        raise RequestError(
            Problem(names.get(field, field), problem.message, problem.value)
            for field, problem in zip(fields, error.problems, strict=True)
        ) from None


def _seed_default(values: Mapping[str, Any]) -> dict[str, int]:
    """A seed for a request without one; the job records it."""
    key = values.get("idempotency_key")
    return {"seed": seed_for(key if isinstance(key, str) else None)}


def _image_references(image: bytes | None, mask: bytes | None) -> dict[str, Any]:
    given = {"image": image, "mask": mask}
    return {
        name: {"path": IN_MEMORY, "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in given.items()
        if data is not None
    }


def _pictures_by_path(request: Mapping[str, Any]) -> Iterator[Problem]:
    """A client may not make the server read its own files."""
    for name in ("image", "mask"):
        if request.get(name) is not None:
            yield Problem(f"request.{name}", f"send the image itself with the request, as `{name}`")


def _bad_names(values: Mapping[str, Any], request: object) -> Iterator[Problem]:
    for field, name in (("model", values.get("model")), *_names_in(request)):
        if isinstance(name, str):
            try:
                check_name(field, name)
            except RequestError as error:
                yield from error.problems


def _names_in(request: object) -> Iterator[tuple[str, object]]:
    if not isinstance(request, Mapping):
        return
    yield "request.vae", request.get("vae")
    loras = request.get("loras")
    for index, use in enumerate(loras if isinstance(loras, list | tuple) else ()):
        if isinstance(use, Mapping):
            yield f"request.loras.{index}.name", use.get("name")
