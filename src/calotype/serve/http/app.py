"""The HTTP application: routes, the door before them, and its description. Knows nothing of sockets."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware

from calotype.serve.auth import Access, KeyCheck
from calotype.serve.decoding.decoder import ImageDecoder
from calotype.serve.http import errors
from calotype.serve.http.dependencies import AppState
from calotype.serve.http.middleware.access_log import AccessLogMiddleware
from calotype.serve.http.middleware.head import HeadMiddleware
from calotype.serve.http.middleware.security import LOGIN_ROUTE, OPEN_PATHS, SecurityMiddleware
from calotype.serve.http.request_body import schemas
from calotype.serve.http.routes import admin, events, jobs, ui
from calotype.serve.http.routes.a1111 import api
from calotype.serve.http.routes.comfyui import files, info, queue, websocket
from calotype.serve.http.routes.openai import images
from calotype.serve.http.static_files import StaticFiles
from calotype.serve.service import Service
from calotype.serve.settings import ServeSettings
from calotype.serve.system_info.system_info import SystemInfo
from calotype.serve.workflow.service import WorkflowService
from calotype.version import VERSION

DESCRIPTION = """\
Pictures from Stable Diffusion models, made by a persistent deployment.

- **jobs**: the native interface. A job is on disk when it is accepted; follow it by server-sent events.
- **OpenAI**: `/v1/images` and `/v1/models` for OpenAI's clients.
- **A1111**: `/sdapi/v1` for clients of A1111's web UI.
- **ComfyUI**: `/prompt`, `/queue`, `/history`, `/ws` and the like for clients of ComfyUI, also under `/api`.

Send the API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Whatever goes wrong is answered with an
`error` that says what, where, and how to put it right; `X-Request-Id` finds it in the server's log.
"""
_ROOMS = (jobs, events, images, api, admin, ui)
_COMFY = (queue, files, info)
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def create_app(
    service: Service,
    *,
    keys: KeyCheck | None,
    registry: CollectorRegistry,
    settings: ServeSettings,
    workflows: WorkflowService | None = None,
    surroundings: SystemInfo | None = None,
    page: StaticFiles | None = None,
    decoder: ImageDecoder | None = None,
) -> FastAPI:
    """The application before a service. Without `keys` only this machine may ask, or it refuses to begin.

    `decoder`: shared with another interface, so that both together keep its limits.
    """
    page = page or StaticFiles()
    access = Access(settings, keys)
    app = FastAPI(
        title="Calotype",
        version=VERSION,
        description=DESCRIPTION,
        responses=errors.RESPONSES,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    app.state.reach = AppState(
        service, settings, decoder or ImageDecoder(settings), workflows, surroundings or SystemInfo()
    )
    app.state.registry, app.state.access = registry, access
    rooms = (*_ROOMS, *(_COMFY if workflows is not None else ()))
    for room in rooms:
        app.include_router(room.router)
    if workflows is not None:
        app.include_router(websocket.router)
        for router in (*(room.router for room in _COMFY), websocket.router):
            app.include_router(router, prefix="/api", include_in_schema=False)
    app.include_router(page.router())
    errors.install(app)
    # The last one added is met first.
    app.add_middleware(SecurityMiddleware, settings=settings, access=access, serves_page=page.serves)
    app.add_middleware(HeadMiddleware)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "DELETE"],
            # Clients send headers of their own, OpenAI's a dozen; pages that may ask may say what they like.
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After", "Location"],
        )
    app.add_middleware(AccessLogMiddleware, on_bug=errors.bug_response)
    plain = app.openapi
    app.openapi = lambda: _described(plain(), [body for room in (*rooms, errors) for body in room.BODIES])  # type: ignore[method-assign]
    return app


def _described(schema: dict[str, Any], bodies: list[type[BaseModel]]) -> dict[str, Any]:
    """The description with what FastAPI cannot see: bodies that we read ourselves, and keys."""
    components = schema.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas(bodies))
    components["securitySchemes"] = _SECURITY
    schema["security"] = [{"bearer": []}, {"key": []}]
    for path in (*OPEN_PATHS, "/"):
        for operation in schema["paths"][path].values():
            operation["security"] = []
    schema["paths"][LOGIN_ROUTE[1]][LOGIN_ROUTE[0].lower()]["security"] = []
    return schema
