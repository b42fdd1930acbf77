"""`/v1/images` and `/v1/models`: routes for OpenAI's clients."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from calotype.core.errors import CalotypeError, NotFoundError, Problem, RequestError, did_you_mean
from calotype.serve.auth import Client, Session
from calotype.serve.decoding.decoder import ClientImages
from calotype.serve.decoding.operations import MASK_OF_TRANSPARENCY, recoded
from calotype.serve.errors import done
from calotype.serve.http.dependencies import AppState, AppStateDep, IdempotencyKey, Images, SessionDep
from calotype.serve.http.disconnect import wait_until_disconnect
from calotype.serve.http.errors import bug_body, error_body
from calotype.serve.http.image_formats import size_of
from calotype.serve.http.request_body import (
    as_base64,
    check_kinds,
    described,
    form_body,
    json_body,
    one_file,
    parsed,
)
from calotype.serve.http.routes.openai.schemas import (
    NAMES,
    ImageEdit,
    ImageEditForm,
    ImageGeneration,
    ImagesMade,
    MadeImage,
    ModelEntry,
    ModelList,
    form_values,
)
from calotype.serve.http.sse import DESCRIBED, EventStream, event
from calotype.serve.job_waiting import stream_job, submit_shielded
from calotype.serve.request_parsing import parse_submission, rename_error_fields
from calotype.spec.job import FINAL_STATES, Job

_log = logging.getLogger(__name__)
router = APIRouter(prefix="/v1", tags=["OpenAI"])
IMAGES = ("image", "mask")
BODIES: list[type[BaseModel]] = [ImageGeneration, ImageEditForm]
_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": DESCRIBED, "description": "Images, or events."}
}


@router.post(
    "/images/generations",
    response_model=ImagesMade,
    response_model_exclude_none=True,
    responses=_STREAMED,
    openapi_extra=described(as_json=ImageGeneration),
)
async def generations(
    request: Request,
    reach: AppStateDep,
    visit: SessionDep,
    images: Images,
    idempotency_key: IdempotencyKey = None,
) -> ImagesMade | Response:
    """Generate images from a prompt.

    A disconnect cancels the job, unless the client sent an `Idempotency-Key`.
    """
    body = await json_body(request, ImageGeneration, reach)
    job = await _submit(reach, visit.caller, body, idempotency_key)
    return await _respond(request, reach, visit, images, body, job, "image_generation")


@router.post(
    "/images/edits",
    response_model=ImagesMade,
    response_model_exclude_none=True,
    responses=_STREAMED,
    openapi_extra=described(as_form=ImageEditForm),
)
async def edits(
    request: Request,
    reach: AppStateDep,
    visit: SessionDep,
    images: Images,
    idempotency_key: IdempotencyKey = None,
) -> ImagesMade | Response:
    """Generate images from an image; with a mask, only its transparent areas are repainted.

    A disconnect cancels the job, unless the client sent an `Idempotency-Key`.
    """
    fields, files = await form_body(request)
    check_kinds(fields, files, texts=ImageEdit.model_fields, pictures=IMAGES)
    unknown = sorted(set(files) - set(IMAGES))
    body = parsed(ImageEdit, {**form_values(fields, reach.settings), **dict.fromkeys(unknown, "(a file)")})
    image, mask = one_file(files, "image"), one_file(files, "mask")
    if image is None:
        raise RequestError([Problem("image", "is required: the image to edit, as a file")])
    if mask is not None:
        mask = await images.changed(mask, "mask", MASK_OF_TRANSPARENCY)
    await images.checked(image, "image")
    job = await _submit(reach, visit.caller, body, idempotency_key, image, mask)
    return await _respond(request, reach, visit, images, body, job, "image_edit")


@router.get("/models")
async def models(reach: AppStateDep) -> ModelList:
    """List the loaded models."""
    return ModelList(data=[ModelEntry(id=model.name) for model in await reach.service.models()])


@router.get("/models/{name:path}")
async def model(name: str, reach: AppStateDep) -> ModelEntry:
    """Return one loaded model."""
    known = [model.name for model in await reach.service.models()]
    if name not in known:
        raise NotFoundError(f"no model {name[:80]!r} is loaded; {did_you_mean(name[:80], known)}")
    return ModelEntry(id=name)


async def _submit(
    reach: AppState,
    caller: Client,
    body: ImageGeneration,
    key: str | None,
    image: bytes | None = None,
    mask: bytes | None = None,
) -> Job:
    body.check(size_of(image) if image is not None else None)
    values = {"request": body.request_values(key), "model": body.model, "idempotency_key": key}
    with rename_error_fields(NAMES):
        return await submit_shielded(reach.service, caller, parse_submission(values, image, mask))


async def _respond(
    request: Request,
    reach: AppState,
    visit: Session,
    images: ClientImages,
    body: ImageGeneration,
    job: Job,
    kind: str,
) -> ImagesMade | Response:
    if body.stream:
        return EventStream(_stream(reach, images, body, job, kind), visit, reach.settings.ping_s)
    job = done(await wait_until_disconnect(request, reach.service, job))
    if body.response_format == "url":
        base = f"{request.url.scheme}://{request.url.netloc}/v1/jobs/{job.id}/pictures"
        data = [MadeImage(url=f"{base}/{index}") for index in range(len(job.pictures))]
    else:
        data = [MadeImage(b64_json=text) for text in await _encoded_images(reach, images, body, job)]
    return ImagesMade(
        created=int(job.created_at),
        data=data,
        output_format=body.output_format or "png",
        size=_size(job),
        safety_identifier=body.safety_identifier or body.user,
    )


async def _stream(
    reach: AppState, images: ClientImages, body: ImageGeneration, job: Job, kind: str
) -> AsyncGenerator[bytes]:
    """Yield previews at equal intervals, then each image; an error is the last event."""
    wanted, sent = body.partial_images or 0, 0
    try:
        async with aclosing(stream_job(reach.service, job, previews=wanted > 0)) as updates:
            async for item in updates:
                job = item.job
                due = int(job.steps_done / max(job.steps_total, 1) * (wanted + 1))
                if item.preview and job.state not in FINAL_STATES and sent < min(due, wanted):
                    file = await _convert(images, body, item.preview)
                    picture = {"b64_json": as_base64(file), "partial_image_index": sent}
                    yield _event(f"{kind}.partial_image", {**picture, **_image_info(body, job)})
                    sent += 1
        for text in await _encoded_images(reach, images, body, done(job)):
            yield _event(
                f"{kind}.completed", {"b64_json": text, "usage": _NO_USAGE, **_image_info(body, job)}
            )
    except CalotypeError as error:
        yield event("error", error_body(error))
    except Exception:
        # The response has begun; the client would take a broken stream for a lost connection.
        _log.exception("a stream failed with an internal error")
        yield event("error", bug_body())


_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
"""OpenAI's type requires it; Calotype counts no tokens."""


def _event(kind: str, values: dict[str, Any]) -> bytes:
    return event(kind, {"type": kind, **values})


def _image_info(body: ImageGeneration, job: Job) -> dict[str, Any]:
    return {
        "created_at": int(time.time()),
        "background": "opaque",
        "output_format": body.output_format or "png",
        "quality": body.quality or "auto",
        "size": _size(job) or body.size or "auto",
    }


async def _encoded_images(
    reach: AppState, images: ClientImages, body: ImageGeneration, job: Job
) -> list[str]:
    """Return the job's images as base64 in the requested format."""
    files = [await reach.service.picture(job.id, index) for index in range(len(job.pictures))]
    return [as_base64(await _convert(images, body, data)) for data in files]


async def _convert(images: ClientImages, body: ImageGeneration, png: bytes) -> bytes:
    if body.output_format in (None, "png"):
        return png
    quality = 95 if body.output_compression is None else body.output_compression
    return await images.changed(png, "picture", recoded(body.output_format, quality))


def _size(job: Job) -> str | None:
    return f"{job.pictures[0].width}x{job.pictures[0].height}" if job.pictures else None
