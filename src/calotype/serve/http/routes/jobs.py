"""`/v1/jobs`: hand in, look, follow, stop, fetch, forget. Knows nothing of other clients' dialects."""

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
    """A job to be made."""

    image: str | None = None
    """A picture to start from: PNG, WebP or JPEG as base64 or as a data URL."""
    mask: str | None = None
    """White is painted anew, black is kept; in the same form."""


class NewJobForm(BaseModel):
    """The same as a form, with the pictures as files."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    submission: str
    """What would be the JSON body, as text, without pictures."""
    image: Annotated[str, Field(json_schema_extra={"format": "binary"})] | None = None
    mask: Annotated[str, Field(json_schema_extra={"format": "binary"})] | None = None


class Moving(BaseModel):
    """Another place for a waiting job."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    before: str | None
    """The waiting job it goes in front of; null: behind all."""


class JobPage(BaseModel):
    """Some jobs, newest first."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    jobs: list[Job]
    next: str | None
    """Send it as `before` for the next page; null on the last one."""


BODIES: list[type[BaseModel]] = [NewJob, NewJobForm, Moving]


@router.post(
    "",
    status_code=202,
    response_model=Job,
    responses={200: {"model": Job, "description": "It was waited for, and has ended."}},
    openapi_extra=described(as_json=NewJob, as_form=NewJobForm),
)
async def create(
    request: Request,
    response: Response,
    reach: AppStateDep,
    caller: ClientDep,
    images: Images,
    wait: Annotated[bool, Query(description="Answer when the job has wait_until_disconnect.")] = False,
    prefer: Annotated[str, Header(description="`wait`, or `wait=SECONDS` at most.")] = "",
    idempotency_key: IdempotencyKey = None,
) -> Job:
    """Hand in a job. It is on disk when this is answered.

    Whoever waits and disconnects cancels the job, unless it was sent with an `Idempotency-Key`.
    """
    job = await submit_shielded(reach.service, caller, await _asked(request, reach, images, idempotency_key))
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
    before: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
) -> JobPage:
    """Your jobs, newest first; an admin sees everybody's."""
    jobs = await reach.service.jobs(client=caller.can_see, state=state, kind=kind, limit=limit, before=before)
    return JobPage(jobs=list(jobs), next=cursor_after(jobs) if len(jobs) == limit else None)


@router.get("/{job_id}")
async def one(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> Job:
    """A job as it stands."""
    return await reach.service.job(job_id, client=caller.can_see)


@router.delete("/{job_id}", status_code=204)
async def delete(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> None:
    """Forget an ended job and its pictures."""
    await reach.service.delete(job_id, client=caller.can_see)


@router.post("/{job_id}/cancel")
async def cancel(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> Job:
    """Ask for a stop: at once while it is queued, at the next step while it runs; an ended job stays."""
    return await reach.service.cancel(job_id, client=caller.can_see)


@router.post("/{job_id}/move", openapi_extra=described(as_json=Moving))
async def move(job_id: JobId, request: Request, reach: AppStateDep, caller: ClientDep) -> Job:
    """Change a waiting job's place. Your jobs trade places among themselves; an admin's move is among all."""
    body = await json_body(request, Moving, reach)
    return await reach.service.move(job_id, body.before, client=caller.can_see)


@router.get(
    "/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": DESCRIBED, "description": "Events."},
        204: {"description": "Nothing more will happen; an EventSource stops asking."},
    },
)
async def events(
    job_id: JobId,
    reach: AppStateDep,
    visit: SessionDep,
    previews: Annotated[bool, Query(description="Show what is there so far, as data URLs.")] = False,
    last_event_id: Annotated[str, Header(description="Sent by an EventSource that reconnects.")] = "",
) -> Response:
    """Follow a job by server-sent events, from its present state to its end.

    `state` carries the whole job whenever its state changes, `step` the steps done and, where asked for, a
    preview. Reconnecting begins with the present state. Leaving does not touch the job.
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
            "description": "The PNG file, which holds the request that makes it again.",
            "headers": {"ETag": {"description": "Its SHA-256.", "schema": {"type": "string"}}},
        },
        304: {"description": "It is the one that `If-None-Match` names."},
    },
)
async def picture(
    job_id: JobId,
    index: Annotated[int, Path(ge=0, le=100_000)],
    reach: AppStateDep,
    caller: ClientDep,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """A finished picture."""
    job = await reach.service.job(job_id, client=caller.can_see)
    if index >= len(job.pictures):
        raise NotFoundError(f"job {job_id} has {len(job.pictures)} pictures, counted from 0; {index} is none")
    tag = f'"{job.pictures[index].sha256}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in if_none_match:
        return Response(status_code=304, headers=headers)
    data = await reach.service.picture(job_id, index, client=caller.can_see)
    return Response(data, media_type="image/png", headers=headers)


async def _asked(
    request: Request, reach: AppState, images: ClientImages, idempotency_key: str | None
) -> ParsedRequest:
    given: dict[str, bytes | None] = {}
    if is_form(request):
        fields, files = await form_body(request)
        _check_form({*fields, *files})
        check_kinds(fields, files, texts=("submission",), pictures=IMAGES)
        values = loads(fields.get("submission", [""])[-1].encode(), reach.settings)
        given = {name: one_file(files, name) for name in IMAGES}
    else:
        values = loads(await request.body(), reach.settings)
    if not isinstance(values, dict):
        raise RequestError([Problem("body", "is not a JSON object")])
    for name in IMAGES:
        text = values.pop(name, None)
        if text is not None:
            given[name] = from_base64(text, name)
    asked = parse_submission({**values, **_key(values, idempotency_key)}, **given)
    for name, data in given.items():
        if data is not None:
            await images.checked(data, name)
    return asked


def _check_form(names: set[str]) -> None:
    problems = [
        Problem(name, f"is not a part of this form; {did_you_mean(name, FORM_PARTS)}")
        for name in sorted(names - set(FORM_PARTS))
    ]
    if "submission" not in names:
        problems.append(Problem("submission", "is required: the job as JSON text"))
    if problems:
        raise RequestError(problems)


def _key(values: dict[str, Any], header: str | None) -> dict[str, str]:
    """The idempotency key of the header, which is also one of the body."""
    if header is None:
        return {}
    inside = values.get("idempotency_key")
    if inside not in (None, header):
        body_key, header_key = short_repr(inside), short_repr(header)
        rule = f"{body_key} in the body is another than {header_key} in the header; send one of them"
        raise RequestError([Problem("idempotency_key", rule)])
    return {"idempotency_key": header}


async def _events(service: Service, job: Job, *, previews: bool) -> AsyncGenerator[bytes]:
    state = None
    try:
        async with subscribe(service, job.id, previews=previews) as told:
            async for item in told:
                if item.job.state == state == "running":
                    yield event("step", _step(item), event_id=state)
                    continue
                text = event("state", item.job.model_dump(mode="json"), event_id=item.job.state)
                yield first(text) if state is None else text
                state = item.job.state
    except CalotypeError as error:
        # Somebody may have had it forgotten since.
        yield event("error", error_body(error))


def _step(item: JobNews) -> dict[str, Any]:
    return {
        "id": item.job.id,
        "steps_done": item.job.steps_done,
        "steps_total": item.job.steps_total,
        "preview": png_url(item.preview) if item.preview else None,
    }
