"""FastAPI dependencies of the routes: the service, its settings, the client and its session."""

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
    """What all routes share."""

    service: Service
    settings: ServeSettings
    decoder: ImageDecoder
    workflows: WorkflowService | None = None
    surroundings: SystemInfo = field(default_factory=SystemInfo)


def _app_state(request: Request) -> AppState:
    reach = request.app.state.reach
    assert isinstance(reach, AppState)
    return reach


def _workflows(request: Request) -> WorkflowService:
    workflows = _app_state(request).workflows
    assert workflows is not None, "workflow routes exist only with a workflow service"
    return workflows


def _system_info(request: Request) -> SystemInfo:
    return _app_state(request).surroundings


def _session(request: Request) -> Session:
    visit = request.state.visit
    assert isinstance(visit, Session)
    return visit


def _client(request: Request) -> Client:
    return _session(request).caller


class RequestImages(ClientImages):
    """Decodes the images of one request, until the client disconnects."""

    def __init__(self, decoder: ImageDecoder, request: Request, caller: Client) -> None:
        address = request.client.host if request.client else LOCAL
        # Without keys all clients share one name, so the address tells them apart.
        super().__init__(decoder, f"{caller.name}@{address}" if caller.name == LOCAL else caller.name)
        self._request = request

    async def changed(self, data: bytes, field: str, operation: Operation) -> bytes:
        return await unless_left(self._request, super().changed(data, field, operation))


def _images(request: Request) -> RequestImages:
    return RequestImages(_app_state(request).decoder, request, _client(request))


def _job_id(job_id: Annotated[str, Path(description="The id of a job.")]) -> str:
    """Reject an id that no job can have, without a query to the database."""
    if not _JOB_ID.fullmatch(job_id):
        raise NotFoundError(f"there is no job {short_repr(job_id)}")
    return job_id


AppStateDep = Annotated[AppState, Depends(_app_state)]
WorkflowServiceDep = Annotated[WorkflowService, Depends(_workflows)]
SystemInfoDep = Annotated[SystemInfo, Depends(_system_info)]
ClientDep = Annotated[Client, Depends(_client)]
SessionDep = Annotated[Session, Depends(_session)]
Images = Annotated[RequestImages, Depends(_images)]
JobId = Annotated[str, Depends(_job_id)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1, max_length=200, description="A second request with the same key returns the same job."
    ),
]
