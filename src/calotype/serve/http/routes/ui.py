"""`/calotype`: routes for the web page besides jobs and workflows: session, system, models, records."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse

from calotype.core.errors import CalotypeError, NotFoundError, Problem, RequestError
from calotype.serve.auth import Access, Client
from calotype.serve.disclosure import visible, visible_status
from calotype.serve.http.dependencies import AppState, AppStateDep, ClientDep, SystemInfoDep
from calotype.serve.http.errors import json_response
from calotype.serve.http.middleware.security import cookie_name
from calotype.serve.http.request_body import described, form_body, json_body, one_file
from calotype.spec.job import PictureFile
from calotype.spec.records.measurement import Kind
from calotype.version import VERSION
from calotype.workflow.load import texts_in_picture

router = APIRouter(prefix="/calotype", tags=["page"])
MAX_RECORDS = 10_000
_OWNER = Query(description="For admins: the client whose images are meant.")


class NewSession(BaseModel):
    """A browser's login."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    key: str
    """An API key."""


class CarryingPicture(BaseModel):
    """An image that may contain a workflow."""

    image: Annotated[str, Field(json_schema_extra={"format": "binary"})]


class CarriedTexts(BaseModel):
    """The metadata texts of an image, unchanged."""

    prompt: str | None = None
    workflow: str | None = None


BODIES: list[type[BaseModel]] = [NewSession, CarryingPicture]


@router.get("/session")
async def session(request: Request, caller: ClientDep) -> dict[str, Any]:
    """Return the current client, and whether API keys exist."""
    return _about(request, caller)


@router.post("/session", openapi_extra=described(as_json=NewSession))
async def begin_session(request: Request, reach: AppStateDep) -> Response:
    """Store an API key in a cookie that scripts cannot read, for browser requests without headers."""
    body = await json_body(request, NewSession, reach)
    caller = _access(request).caller(body.key)
    response = json_response(_about(request, caller))
    response.set_cookie(
        cookie_name(request.scope),
        body.key,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.delete("/session", status_code=204)
async def end_session(request: Request) -> Response:
    """Delete the cookie."""
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(request.scope), httponly=True, samesite="strict")
    return response


@router.get("/system")
async def system(
    request: Request, reach: AppStateDep, surroundings: SystemInfoDep, caller: ClientDep
) -> dict[str, Any]:
    """Return the deployment and its machine; paths and process ids for admins only."""
    about = await surroundings.system()
    about["limits"]["largest_body_bytes"] = reach.settings.largest_body_bytes
    current = visible_status(caller, reach.service.status())
    status = dataclasses.asdict(current)
    for values, worker in zip(status["workers"], current.workers, strict=True):
        values["models"] = [model.model_dump() for model in worker.models]
    problem = _access(request).keys_problem if caller.admin else None
    about = visible(caller, {**about, "nodes": _nodes(reach)})
    if not caller.admin:
        about["disks"] = [{**disk, "path": None} for disk in about["disks"]]
    return {**status, "version": VERSION, **about, "keys_problem": problem}


@router.get("/models")
async def models(reach: AppStateDep, surroundings: SystemInfoDep, caller: ClientDep) -> dict[str, Any]:
    """List all model files with their folders; the path of the model folder for admins only."""
    loaded = {model.name: model for model in await reach.service.models()}
    files = await surroundings.model_files()
    for file in files:
        model = loaded.get(file["name"]) if file["folder"] == "checkpoints" else None
        file["loaded"] = model is not None
        file["bytes"] = file["bytes"] if model is None or file["bytes"] is not None else model.bytes
        file["sampling"] = None if model is None or model.sampling is None else model.sampling.model_dump()
    return {"folder": visible(caller, str(surroundings.model_folder)), "models": files}


@router.get("/models/{folder}/{name:path}")
async def inspect(folder: str, name: str, surroundings: SystemInfoDep, caller: ClientDep) -> dict[str, Any]:
    """Inspect a model file: its kind, its base model, and whether it is safe."""
    try:
        description: dict[str, Any] = visible(caller, await surroundings.inspect(folder, name))
    except CalotypeError as error:
        if type(error) not in (CalotypeError, NotFoundError):
            raise
        raise type(error)(visible(caller, str(error))) from error
    return description


@router.post("/carried", openapi_extra=described(as_form=CarryingPicture))
async def carried(request: Request) -> CarriedTexts:
    """Extract the workflow from an image of any format; the server stores nothing."""
    _, files = await form_body(request)
    data = one_file(files, "image")
    if data is None:
        raise RequestError([Problem("image", "is required: an image as a file")])
    return CarriedTexts(**await asyncio.to_thread(texts_in_picture, data, "the image"))


@router.get("/uploads")
async def uploads(
    reach: AppStateDep, caller: ClientDep, client: Annotated[str | None, _OWNER] = None
) -> dict[str, Any]:
    """List your uploaded images for workflows."""
    owner = caller.acts_for(client)
    found = await reach.workflows.uploads(client=owner) if reach.workflows else ()
    return {
        "uploads": [
            {**upload.file.model_dump(), "bytes": upload.bytes, "at": upload.used_at} for upload in found
        ]
    }


@router.delete("/uploads", status_code=204)
async def remove_upload(
    reach: AppStateDep,
    caller: ClientDep,
    filename: str,
    subfolder: str = "",
    client: Annotated[str | None, _OWNER] = None,
) -> None:
    """Delete one of your uploads; workflows that wait with it keep their copy."""
    owner = caller.acts_for(client)
    if reach.workflows is None:
        raise NotFoundError("this deployment serves no workflows")
    file = PictureFile(filename=filename, subfolder=subfolder, type="input")
    await reach.workflows.remove_upload(file, client=owner)


@router.get("/records")
async def records(
    surroundings: SystemInfoDep,
    caller: ClientDep,
    kind: Annotated[Kind | None, Query(description="Only measurements of this kind.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = 1000,
    values: Annotated[bool, Query(description="Include all raw values.")] = False,
) -> Response:
    """List the measurements in the deployment's record folders, latest first."""
    found = await surroundings.listed_records(kind, limit, values=values)
    return json_response(await asyncio.to_thread(visible, caller, found))


@router.get("/reports")
async def reports(surroundings: SystemInfoDep) -> dict[str, Any]:
    """List the report pages in the same folders, latest first."""
    return {"reports": await surroundings.reports()}


@router.get("/reports/{name:path}", response_class=HTMLResponse)
async def report(name: str, surroundings: SystemInfoDep) -> Response:
    """Return a report page in a sandbox."""
    policy = "sandbox allow-scripts allow-popups; frame-ancestors 'self'"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
    return HTMLResponse(await surroundings.report(name), headers=headers)


def _access(request: Request) -> Access:
    access = request.app.state.access
    assert isinstance(access, Access)
    return access


def _about(request: Request, caller: Client) -> dict[str, Any]:
    return {"client": caller.name, "admin": caller.admin, "keys": _access(request).has_keys}


def _nodes(reach: AppState) -> dict[str, Any]:
    if reach.workflows is None:
        return {"count": 0, "problems": []}
    return {
        "count": reach.workflows.num_nodes(),
        "problems": [
            {"package": package, "problem": problem} for package, problem in reach.workflows.left_out()
        ],
    }
