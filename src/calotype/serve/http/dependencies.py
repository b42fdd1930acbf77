"""What routes reach for: the service, its limits, who asks. Knows nothing of any route."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Header, Path, Request

from calotype.core.errors import NotFoundError
from calotype.serve.auth import LOCAL, Caller, Visit
from calotype.serve.decoding.decoder import ClientImages, ImageDecoder
from calotype.serve.decoding.operations import Operation
from calotype.serve.http.disconnect import unless_left
from calotype.serve.service import Service
from calotype.serve.settings import ServeSettings
from calotype.serve.system_info.system_info import Surroundings
from calotype.serve.workflow.service import WorkflowService
from calotype.spec.validation_errors import shown

_JOB_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Reach:
    """The deployment behind the routes."""

    service: Service
    settings: ServeSettings
    decoder: ImageDecoder
    workflows: WorkflowService | None = None
    surroundings: Surroundings = field(default_factory=Surroundings)


def _reach(request: Request) -> Reach:
    reach = request.app.state.reach
    assert isinstance(reach, Reach)
    return reach


def _workflows(request: Request) -> WorkflowService:
    workflows = _reach(request).workflows
    assert workflows is not None, "its routes are there only where it is"
    return workflows


def _surroundings(request: Request) -> Surroundings:
    return _reach(request).surroundings


def _visit(request: Request) -> Visit:
    visit = request.state.visit
    assert isinstance(visit, Visit)
    return visit


def _caller(request: Request) -> Caller:
    return _visit(request).caller


class RequestImages(ClientImages):
    """Decodes images for one request; a client that disconnects ends that."""

    def __init__(self, decoder: ImageDecoder, request: Request, caller: Caller) -> None:
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
        raise NotFoundError(f"there is no job {shown(job_id)}")
    return job_id


Reached = Annotated[Reach, Depends(_reach)]
Workflows = Annotated[WorkflowService, Depends(_workflows)]
Surrounded = Annotated[Surroundings, Depends(_surroundings)]
Asking = Annotated[Caller, Depends(_caller)]
Visiting = Annotated[Visit, Depends(_visit)]
Images = Annotated[RequestImages, Depends(_images)]
JobId = Annotated[str, Depends(_job_id)]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="The same key again answers with the same job."),
]
