"""ComfyUI's routes for workflows: submit, list, cancel, interrupt, and the history.

A client sees its own workflows, an admin those of all clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from calotype.core.errors import NotFoundError, RequestError
from calotype.serve.http.dependencies import AppStateDep, ClientDep, JobId, WorkflowServiceDep
from calotype.serve.http.errors import json_response
from calotype.serve.http.request_body import described, json_body
from calotype.serve.http.routes.comfyui.schemas import is_remembered, number_of, queued, refusal, remembered
from calotype.serve.pagination import cursor_after
from calotype.serve.service import Service
from calotype.serve.workflow.service import WorkflowRefusedError
from calotype.spec.job import FINAL_STATES, Job, JobState
from calotype.spec.workflow import WorkflowSubmission

router = APIRouter(tags=["ComfyUI"])
PAGE = 200
MAX_REMEMBERED = 1000


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", use_attribute_docstrings=True)


class QueueEdit(_Body):
    """Which workflows to remove from the queue or the history."""

    clear: bool = False
    """Remove all."""
    delete: list[str] = []
    """Ids to remove."""


class InterruptBody(_Body):
    """Which workflow to stop."""

    prompt_id: str | None = None
    """Default: all running workflows."""


class FreeBody(_Body):
    """What memory to release."""

    unload_models: bool | None = None
    """Unload every model as soon as no job uses it; default: the value of `free_memory`."""
    free_memory: bool = False
    """Drop the cached results of nodes."""


BODIES: list[type[BaseModel]] = [WorkflowSubmission, QueueEdit, InterruptBody, FreeBody]
_REJECTED: dict[int | str, dict[str, Any]] = {
    400: {"description": "The graph cannot run: `error` and `node_errors` list every problem."}
}


@router.post("/prompt", responses=_REJECTED, openapi_extra=described(as_json=WorkflowSubmission))
async def queue_prompt(
    request: Request, reach: AppStateDep, workflows: WorkflowServiceDep, caller: ClientDep
) -> Response:
    """Submit a workflow in ComfyUI's API format. It is on disk when the response arrives."""
    try:
        submission = await json_body(request, WorkflowSubmission, reach)
        accepted = await workflows.submit(submission, client=caller.name)
    except WorkflowRefusedError as error:
        return json_response(error.body, 400)
    except RequestError as error:
        return json_response(refusal(error), 400)
    job = accepted.job
    return json_response({"prompt_id": job.id, "number": number_of(job), "node_errors": accepted.node_errors})


@router.get("/prompt")
async def remaining(workflows: WorkflowServiceDep, caller: ClientDep) -> dict[str, Any]:
    """Count the workflows that wait or run."""
    return {"exec_info": {"queue_remaining": await workflows.unended(client=caller.can_see)}}


@router.get("/queue")
async def queue(reach: AppStateDep, caller: ClientDep) -> dict[str, Any]:
    """List running and waiting workflows in queue order."""
    running = [job async for job in _jobs(reach.service, caller.can_see, "running")]
    waiting = [job async for job in _jobs(reach.service, caller.can_see, "queued")]
    waiting.sort(key=lambda job: job.position or 0)
    return {
        "queue_running": [queued(job) for job in reversed(running)],
        "queue_pending": [queued(job) for job in waiting],
    }


@router.post("/queue", openapi_extra=described(as_json=QueueEdit))
async def edit_queue(request: Request, reach: AppStateDep, caller: ClientDep) -> Response:
    """Cancel waiting workflows; running ones continue."""
    body = await json_body(request, QueueEdit, reach)
    waiting = [job.id async for job in _jobs(reach.service, caller.can_see, "queued")]
    for job_id in waiting:
        if body.clear or job_id in body.delete:
            with _ignore_deleted():
                await reach.service.cancel(job_id, client=caller.can_see)
    return Response(status_code=200)


@router.post("/interrupt", openapi_extra=described(as_json=InterruptBody, required=False))
async def interrupt(request: Request, reach: AppStateDep, caller: ClientDep) -> Response:
    """Cancel running workflows at their next step."""
    body = await json_body(request, InterruptBody, reach) if await request.body() else InterruptBody()
    running = [job.id async for job in _jobs(reach.service, caller.can_see, "running")]
    for job_id in running:
        if body.prompt_id in (None, job_id):
            with _ignore_deleted():
                await reach.service.cancel(job_id, client=caller.can_see)
    return Response(status_code=200)


@router.post("/free", openapi_extra=described(as_json=FreeBody, required=False))
async def free(request: Request, reach: AppStateDep, caller: ClientDep) -> Response:
    """Release memory. Later jobs load what they need again, which takes time. For admins."""
    caller.require_admin()
    body = await json_body(request, FreeBody, reach) if await request.body() else FreeBody()
    models = body.free_memory if body.unload_models is None else body.unload_models
    await reach.service.free(models=models, results=body.free_memory)
    return Response(status_code=200)


@router.get("/history")
async def history(
    reach: AppStateDep,
    caller: ClientDep,
    max_items: Annotated[
        int, Query(ge=-1, description="Return at most this many of the latest; -1 is all.")
    ] = -1,
    offset: Annotated[int, Query(ge=-1, description="Skip this many of the earliest.")] = -1,
) -> dict[str, Any]:
    """List ended workflows, earliest first."""
    latest = MAX_REMEMBERED if max_items < 0 else min(max_items, MAX_REMEMBERED)
    jobs: list[Job] = []
    if latest:
        async for job in _jobs(reach.service, caller.can_see):
            if is_remembered(job):
                jobs.append(job)
            if len(jobs) == latest and offset < 0:
                break
    jobs.reverse()
    if offset >= 0:
        jobs = jobs[offset : offset + latest]
    return {job.id: remembered(job, caller.name) for job in jobs}


@router.get("/history/{job_id}")
async def history_of(job_id: JobId, reach: AppStateDep, caller: ClientDep) -> dict[str, Any]:
    """Return an ended workflow; empty until it has ended."""
    try:
        job = await reach.service.job(job_id, client=caller.can_see)
    except NotFoundError:
        return {}
    return {job.id: remembered(job, caller.name)} if is_remembered(job) else {}


@router.post("/history", openapi_extra=described(as_json=QueueEdit))
async def clear_history(request: Request, reach: AppStateDep, caller: ClientDep) -> Response:
    """Delete ended workflows and their images."""
    body = await json_body(request, QueueEdit, reach)
    ended = [job.id async for job in _jobs(reach.service, caller.can_see) if job.state in FINAL_STATES]
    for job_id in ended:
        if body.clear or job_id in body.delete:
            with _ignore_deleted():
                await reach.service.delete(job_id, client=caller.can_see)
    return Response(status_code=200)


def _ignore_deleted() -> suppress:
    """Skip a workflow that another request deleted after the listing."""
    return suppress(NotFoundError)


async def _jobs(service: Service, client: str | None, state: JobState | None = None) -> AsyncIterator[Job]:
    """Yield all workflows page by page, newest first."""
    before: str | None = None
    while page := await service.jobs(client=client, state=state, kind="workflow", limit=PAGE, before=before):
        for job in page:
            yield job
        if len(page) < PAGE:
            return
        before = cursor_after(page)
