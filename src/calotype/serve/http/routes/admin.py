"""Whether it lives, whether it is ready, how it does, which models it holds. Knows nothing of jobs."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, ConfigDict
from starlette.responses import PlainTextResponse

from calotype.core.paths import check_name
from calotype.serve.disclosure import visible_status
from calotype.serve.http.dependencies import AppStateDep, ClientDep
from calotype.serve.http.errors import json_response
from calotype.serve.http.request_body import described, json_body
from calotype.serve.ipc.messages import LoadedModel
from calotype.serve.service import Status

router = APIRouter(tags=["operations"])


class LoadModel(BaseModel):
    """A model to have ready."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    model: str
    """Its name, as the deployment knows it."""


class Health(BaseModel):
    """Whether it can take work."""

    ready: bool
    draining: bool
    refusal: str | None = None
    """Why the queue accepts no jobs now: its disk, or its database."""
    notices: list[str] = []
    """Databases that were damaged, and what became of their jobs."""


class Alive(BaseModel):
    """Whether it can still do anything."""

    alive: bool


BODIES: list[type[BaseModel]] = [LoadModel]


@router.get("/healthz", responses={503: {"model": Alive, "description": "It has to be started again."}})
async def healthz(reach: AppStateDep) -> Response:
    """Liveness: it answers, has workers and a database that it can use. Needs no key."""
    alive = reach.service.status().problem is None
    return json_response({"alive": alive}, 200 if alive else 503)


@router.get(
    "/readyz",
    responses={503: {"model": Health, "description": "Not ready, draining, or the queue accepts no jobs."}},
)
async def readyz(reach: AppStateDep) -> Response:
    """Readiness: jobs are accepted, and a worker is there to do them. Needs no key."""
    status = reach.service.status()
    ready = status.ready and not status.draining
    health = Health(
        ready=status.ready, draining=status.draining, refusal=status.refusal, notices=list(status.notices)
    )
    return json_response(health.model_dump(), 200 if ready else 503)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Prometheus's metrics."""
    registry = request.app.state.registry
    assert isinstance(registry, CollectorRegistry)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    # Drivers are asked for some of it, and may take their time.
    encoded = await asyncio.to_thread(encode, registry)
    return Response(encoded, headers={"Content-Type": content_type})


@router.get("/v1/deployment")
async def deployment(reach: AppStateDep, caller: ClientDep) -> Status:
    """The deployment as it stands: its queue, its workers and their models; process ids for admins only."""
    return visible_status(caller, reach.service.status())


@router.get("/v1/loaded-models")
async def loaded_models(reach: AppStateDep) -> list[LoadedModel]:
    """The models that are ready."""
    return list(await reach.service.models())


@router.post("/v1/loaded-models", openapi_extra=described(as_json=LoadModel))
async def load_model(request: Request, reach: AppStateDep, caller: ClientDep) -> list[LoadedModel]:
    """Have a model ready; the least recently used ones make room for it. For admins."""
    caller.require_admin()
    body = await json_body(request, LoadModel, reach)
    return list(await reach.service.load_model(check_name("model", body.model)))


@router.delete("/v1/loaded-models/{model:path}")
async def unload_model(
    model: Annotated[str, Path(description="Its name.")], reach: AppStateDep, caller: ClientDep
) -> list[LoadedModel]:
    """Let a model go once no job uses it. For admins."""
    caller.require_admin()
    return list(await reach.service.unload_model(check_name("model", model)))
