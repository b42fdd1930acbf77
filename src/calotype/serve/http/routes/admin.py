"""Routes for operations: liveness, readiness, metrics, deployment status and loaded models."""

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
    """A model to load."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    model: str
    """Its name in the deployment."""


class Health(BaseModel):
    """Whether the deployment accepts jobs."""

    ready: bool
    draining: bool
    refusal: str | None = None
    """Why the queue accepts no jobs now: a fault of its disk or its database."""
    notices: list[str] = []
    """Damaged databases, and what happened to their jobs."""


class Alive(BaseModel):
    """Whether the deployment can still work."""

    alive: bool


BODIES: list[type[BaseModel]] = [LoadModel]


@router.get("/healthz", responses={503: {"model": Alive, "description": "The deployment needs a restart."}})
async def healthz(reach: AppStateDep) -> Response:
    """Liveness: the server responds and has workers and a usable database. Needs no key."""
    alive = reach.service.status().problem is None
    return json_response({"alive": alive}, 200 if alive else 503)


@router.get(
    "/readyz",
    responses={
        503: {
            "model": Health,
            "description": "The deployment is not ready or draining, or the queue accepts no jobs.",
        }
    },
)
async def readyz(reach: AppStateDep) -> Response:
    """Readiness: the deployment accepts jobs and has a worker to run them. Needs no key."""
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
    """Return metrics in Prometheus format."""
    registry = request.app.state.registry
    assert isinstance(registry, CollectorRegistry)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    # Some collectors query a driver, which can be slow.
    encoded = await asyncio.to_thread(encode, registry)
    return Response(encoded, headers={"Content-Type": content_type})


@router.get("/v1/deployment")
async def deployment(reach: AppStateDep, caller: ClientDep) -> Status:
    """Return the deployment's status: queue, workers and their models; process ids for admins only."""
    return visible_status(caller, reach.service.status())


@router.get("/v1/loaded-models")
async def loaded_models(reach: AppStateDep) -> list[LoadedModel]:
    """List the loaded models."""
    return list(await reach.service.models())


@router.post("/v1/loaded-models", openapi_extra=described(as_json=LoadModel))
async def load_model(request: Request, reach: AppStateDep, caller: ClientDep) -> list[LoadedModel]:
    """Load a model; this evicts the least recently used ones if necessary. For admins."""
    caller.require_admin()
    body = await json_body(request, LoadModel, reach)
    return list(await reach.service.load_model(check_name("model", body.model)))


@router.delete("/v1/loaded-models/{model:path}")
async def unload_model(
    model: Annotated[str, Path(description="Its name.")], reach: AppStateDep, caller: ClientDep
) -> list[LoadedModel]:
    """Unload a model as soon as no job uses it. For admins."""
    caller.require_admin()
    return list(await reach.service.unload_model(check_name("model", model)))
