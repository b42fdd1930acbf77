"""`/v1/jobs`: submit, list, follow, cancel and delete jobs, and fetch their images."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from calotype.core.errors import CalotypeError, NotFoundError, Problem, RequestError, did_you_mean
from calotype.serve.decoding.decoder import ClientImages
from calotype.serve.http.dependencies import (
    AppState,
    AppStateDep,
    ClientDep,
    IdempotencyKey,
    Images,
    JobId,
    SessionDep,
)
from calotype.serve.http.disconnect import wait_until_disconnect
from calotype.serve.http.errors import error_body
from calotype.serve.http.json_limits import loads
from calotype.serve.http.request_body import (
    check_kinds,
    described,
    form_body,
    from_base64,
    is_form,
    json_body,
    one_file,
    png_url,
)
from calotype.serve.http.sse import DESCRIBED, EventStream, event, first
from calotype.serve.job_waiting import submit_shielded, subscribe
from calotype.serve.pagination import cursor_after
from calotype.serve.request_parsing import ParsedRequest, parse_submission
from calotype.serve.service import Service
from calotype.spec.job import FINAL_STATES, Job, JobKind, JobNews, JobState, Submission
from calotype.spec.validation_errors import short_repr

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
IMAGES = ("image", "mask")
FORM_PARTS = ("submission", *IMAGES)
_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait(?:=(\d{1,6}))?(?:$|[,;\s])")


class NewJob(Submission):
    """A job to submit."""

    image: str | None = None
    """The start image: PNG, WebP or JPEG, as base64 or as a data URL."""
    mask: str | None = None
    """The inpainting mask, encoded in the same way: white is repainted, black is kept."""


class NewJobForm(BaseModel):
    """A job to submit as a form, with the images as files."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    submission: str
    """The JSON body as text, without images."""
    image: Annotated[str, Field(json_schema_extra={"format": "binary"})] | None = None
    mask: Annotated[str, Field(json_schema_extra={"format": "binary"})] | None = None


class Moving(BaseModel):
    """A new queue position for a waiting job."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    before: str | None
    """The waiting job to move in front of; null moves it to the end."""


class JobPage(BaseModel):
    """Some jobs, newest first."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    jobs: list[Job]
    next: str | None
    """Send it as `before` for the next page; null on the last page."""


BODIES: list[type[BaseModel]] = [NewJob, NewJobForm, Moving]


@router.post(
    "",
    status_code=202,
    response_model=Job,
    responses={200: {"model": Job, "description": "The request waited, and the job has ended."}},
    openapi_extra=described(as_json=NewJob, as_form=NewJobForm),
)
async def create(
    request: Request,
    response: Response,
    reach: AppStateDep,
    caller: ClientDep,
    images: Images,
    wait: Annotated[bool, Query(description="Respond when the job has ended.")] = False,
    prefer: Annotated[str, Header(description="`wait`, or `wait=SECONDS` to limit the time.")] = "",
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Submit a job. It is on disk when the response arrives.

    A client that waits and disconnects cancels the job, unless it sent an `Idempotency-Key`.
    """
    job = await submit_shielded(reach.service, caller, await _parse(request, reach, images, idempotency_key))
    preferred = _PREFER_WAIT.search(prefer)
    if wait or preferred:
        seconds = float(preferred[1]) if preferred and preferred[1] and not wait else None
        job = await wait_until_disconnect(request, reach.service, job, within_s=seconds)
        if preferred:
            response.headers["Preference-Applied"] = preferred[0].strip(" ,;")
    response.status_code = 200 if job.state in FINAL_STATES else 202
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("")
async def listing(
    reach: AppStateDep,
    caller: ClientDep,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    kind: Annotated[JobKind | None, Query(description="Only jobs of this kind.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(max_length=64, description="`next` of the previous page.")] = None,
) -> JobPage:
    """List your jobs, newest first; an admin sees the jobs of all clients."""
    jobs = await reach.service.jobs(client=caller.can_see, state=state, kind=kind, limit=limit, before=before)
    return JobPage(jobs=list(jobs), next=cursor_after(jobs) if len(jobs) == limit else None)


@router.get("/{job_id}")
async def one(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> Job:
    """Return a job in its current state."""
    return await reach.service.job(job_id, client=caller.can_see)


@router.delete("/{job_id}", status_code=204)
async def delete(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> None:
    """Delete an ended job and its images."""
    await reach.service.delete(job_id, client=caller.can_see)


@router.post("/{job_id}/cancel")
async def cancel(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> Job:
    """Cancel a job: at once while it is queued, at the next step while it runs. An ended job is unchanged."""
    return await reach.service.cancel(job_id, client=caller.can_see)


@router.post("/{job_id}/move", openapi_extra=described(as_json=Moving))
async def move(job_id: JobId, request: Request, reach: AppStateDep, caller: ClientDep) -> Job:
    """Change a waiting job's queue position: among your own jobs, or among all jobs for an admin."""
    body = await json_body(request, Moving, reach)
    return await reach.service.move(job_id, body.before, client=caller.can_see)


@router.get(
    "/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": DESCRIBED, "description": "Events."},
        204: {"description": "The job has ended; an EventSource stops reconnecting."},
    },
)
async def events(
    job_id: JobId,
    reach: AppStateDep,
    visit: SessionDep,
    previews: Annotated[bool, Query(description="Send previews of the image so far, as data URLs.")] = False,
    last_event_id: Annotated[str, Header(description="An EventSource sends it when it reconnects.")] = "",
) -> Response:
    """Follow a job with server-sent events, from its current state to its end.

    `state` carries the whole job whenever its state changes. `step` carries the steps done and, on request, a
    preview. A reconnect begins with the current state. A disconnect does not affect the job.
    """
    job = await reach.service.job(job_id, client=visit.caller.can_see)
    if last_event_id in FINAL_STATES:
        return Response(status_code=204)
    source = _events(reach.service, job, previews=previews)
    return EventStream(source, visit, reach.settings.ping_s)


@router.get(
    "/{job_id}/pictures/{index}",
    response_class=Response,
    responses={
        200: {
            "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}},
            "description": "The PNG file; its metadata hold the request that reproduces it.",
            "headers": {"ETag": {"description": "Its SHA-256.", "schema": {"type": "string"}}},
        },
        304: {"description": "The file matches `If-None-Match`."},
    },
)
async def picture(
    job_id: JobId,
    index: Annotated[int, Path(ge=0, le=100_000)],
    reach: AppStateDep,
    caller: ClientDep,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """Return a finished image."""
    job = await reach.service.job(job_id, client=caller.can_see)
    if index >= len(job.pictures):
        raise NotFoundError(
            f"job {job_id} has {len(job.pictures)} images, counted from 0; there is no image {index}"
        )
    tag = f'"{job.pictures[index].sha256}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in if_none_match:
        return Response(status_code=304, headers=headers)
    data = await reach.service.picture(job_id, index, client=caller.can_see)
    return Response(data, media_type="image/png", headers=headers)


async def _parse(
    request: Request, reach: AppState, images: ClientImages, idempotency_key: str | None
) -> ParsedRequest:
    image_data: dict[str, bytes | None] = {}
    if is_form(request):
        fields, files = await form_body(request)
        _check_form({*fields, *files})
        check_kinds(fields, files, texts=("submission",), pictures=IMAGES)
        values = loads(fields.get("submission", [""])[-1].encode(), reach.settings)
        image_data = {name: one_file(files, name) for name in IMAGES}
    else:
        values = loads(await request.body(), reach.settings)
    if not isinstance(values, dict):
        raise RequestError([Problem("body", "is not a JSON object")])
    for name in IMAGES:
        text = values.pop(name, None)
        if text is not None:
            image_data[name] = from_base64(text, name)
    parsed = parse_submission({**values, **_key(values, idempotency_key)}, **image_data)
    for name, data in image_data.items():
        if data is not None:
            await images.checked(data, name)
    return parsed


def _check_form(names: set[str]) -> None:
    problems = [
        Problem(name, f"is not a field of this form; {did_you_mean(name, FORM_PARTS)}")
        for name in sorted(names - set(FORM_PARTS))
    ]
    if "submission" not in names:
        problems.append(Problem("submission", "is required: the job as JSON text"))
    if problems:
        raise RequestError(problems)


def _key(values: dict[str, Any], header: str | None) -> dict[str, str]:
    """Return the header's idempotency key as a field of the body; reject two different keys."""
    if header is None:
        return {}
    in_body = values.get("idempotency_key")
    if in_body not in (None, header):
        body_key, header_key = short_repr(in_body), short_repr(header)
        rule = f"{body_key} in the body differs from {header_key} in the header; send one of them"
        raise RequestError([Problem("idempotency_key", rule)])
    return {"idempotency_key": header}


async def _events(service: Service, job: Job, *, previews: bool) -> AsyncGenerator[bytes]:
    state = None
    try:
        async with subscribe(service, job.id, previews=previews) as updates:
            async for item in updates:
                if item.job.state == state == "running":
                    yield event("step", _step(item), event_id=state)
                    continue
                text = event("state", item.job.model_dump(mode="json"), event_id=item.job.state)
                yield first(text) if state is None else text
                state = item.job.state
    except CalotypeError as error:
        # Another request may have deleted the job.
        yield event("error", error_body(error))


def _step(item: JobNews) -> dict[str, Any]:
    return {
        "id": item.job.id,
        "steps_done": item.job.steps_done,
        "steps_total": item.job.steps_total,
        "preview": png_url(item.preview) if item.preview else None,
    }
