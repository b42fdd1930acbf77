"""`/v1/events`: whatever happens to a client's jobs, as one stream. Knows nothing of single jobs' steps."""

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
    """Follow all your jobs: `queue` says how many wait and run, `job` is one whose state or place changed.

    Begins with `queue`. After a break, look at `/v1/jobs` again.
    """
    return EventStream(_events(reach.service, visit.caller.can_see), visit, reach.settings.ping_s)


async def _events(service: Service, client: str | None) -> AsyncGenerator[bytes]:
    with service.follow(client=client) as happenings:
        counted = _counted(service)
        yield first(event("queue", counted))
        async for happening in happenings:
            if happening.news is None:
                yield event("job", happening.job.model_dump(mode="json"))
            if counted != (counted := _counted(service)):
                yield event("queue", counted)


def _counted(service: Service) -> dict[str, int]:
    status = service.status()
    return {"queued": status.queued, "running": status.running}
