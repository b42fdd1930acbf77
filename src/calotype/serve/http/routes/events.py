"""`/v1/events`: one stream of events about all jobs of a client, without single steps."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from calotype.serve.http.dependencies import AppStateDep, SessionDep
from calotype.serve.http.sse import DESCRIBED, EventStream, event, first
from calotype.serve.service import Service

router = APIRouter(prefix="/v1", tags=["jobs"])
BODIES: list[type[BaseModel]] = []


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": DESCRIBED, "description": "Events."}},
)
async def all_events(reach: AppStateDep, visit: SessionDep) -> EventStream:
    """Follow all your jobs: `queue` counts waiting and running jobs, `job` is a job that changed.

    A job changes when its state or its queue position does. The stream begins with `queue`. After a
    reconnect, read `/v1/jobs` again.
    """
    return EventStream(_events(reach.service, visit.caller.can_see), visit, reach.settings.ping_s)


async def _events(service: Service, client: str | None) -> AsyncGenerator[bytes]:
    with service.follow(client=client) as job_events:
        counts = _count_jobs(service)
        yield first(event("queue", counts))
        async for job_event in job_events:
            if job_event.news is None:
                yield event("job", job_event.job.model_dump(mode="json"))
            if counts != (counts := _count_jobs(service)):
                yield event("queue", counts)


def _count_jobs(service: Service) -> dict[str, int]:
    status = service.status()
    return {"queued": status.queued, "running": status.running}
