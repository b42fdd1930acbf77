"""What routes reach for: the service, its limits, who asks. Knows nothing of any route."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Header, Path, Request

from calotype.core.errors import NotFoundError
from calotype.serve.auth import LOCAL, Client, Session
from calotype.serve.decoding.decoder import ClientImages, ImageDecoder
from calotype.serve.decoding.operations import Operation
from calotype.serve.http.disconnect import unless_left
from calotype.serve.service import Service
from calotype.serve.settings import ServeSettings
from calotype.serve.system_info.system_info import SystemInfo
from calotype.serve.workflow.service import WorkflowService
from calotype.spec.validation_errors import short_repr

_JOB_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class AppState:
    """The deployment behind the routes."""

    service: Service
    settings: ServeSettings
    decoder: ImageDecoder
    workflows: WorkflowService | None = None
    surroundings: SystemInfo = field(default_factory=SystemInfo)


def _reach(request: Request) -> AppState:
    reach = request.app.state.reach
    assert isinstance(reach, AppState)
    return reach


def _workflows(request: Request) -> WorkflowService:
    workflows = _reach(request).workflows
    assert workflows is not None, "its routes are there only where it is"
    return workflows


def _surroundings(request: Request) -> SystemInfo:
    return _reach(request).surroundings


def _visit(request: Request) -> Session:
    visit = request.state.visit
    assert isinstance(visit, Session)
    return visit


def _caller(request: Request) -> Client:
    return _visit(request).caller


class RequestImages(ClientImages):
    """Decodes images for one request; a client that disconnects ends that."""

    def __init__(self, decoder: ImageDecoder, request: Request, caller: Client) -> None:
        address = request.client.host if request.client else LOCAL
        # Without keys all clients have one name.
        super().__init__(decoder, f"{caller.name}@{address}" if caller.name == LOCAL else caller.name)
        self._request = request

    async def changed(self, data: bytes, field: str, operation: Operation) -> bytes:
        return await unless_left(self._request, super().changed(data, field, operation))


def _images(request: Request) -> RequestImages:
    return RequestImages(_reach(request).decoder, request, _caller(request))


def _job_id(job_id: Annotated[str, Path(description="A job's id, as it was answered.")]) -> str:
    """An id that some job could have; others need not trouble the queue."""
    if not _JOB_ID.fullmatch(job_id):
        raise NotFoundError(f"there is no job {short_repr(job_id)}")
    return job_id


AppStateDep = Annotated[AppState, Depends(_reach)]
WorkflowServiceDep = Annotated[WorkflowService, Depends(_workflows)]
SystemInfoDep = Annotated[SystemInfo, Depends(_surroundings)]
ClientDep = Annotated[Client, Depends(_caller)]
SessionDep = Annotated[Session, Depends(_visit)]
Images = Annotated[RequestImages, Depends(_images)]
JobId = Annotated[str, Depends(_job_id)]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="The same key again answers with the same job."),
]
