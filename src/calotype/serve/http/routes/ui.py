"""`/calotype`: what the page asks besides jobs and workflows. Knows nothing of the page."""

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
_WHOSE = Query(description="For admins: another client's.")


class NewSession(BaseModel):
    """A browser's way in."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    key: str
    """An API key."""


class CarryingPicture(BaseModel):
    """A picture that may carry a workflow."""

    image: Annotated[str, Field(json_schema_extra={"format": "binary"})]


class CarriedTexts(BaseModel):
    """What a picture carries, as it was written there."""

    prompt: str | None = None
    workflow: str | None = None


BODIES: list[type[BaseModel]] = [NewSession, CarryingPicture]


@router.get("/session")
async def session(request: Request, caller: ClientDep) -> dict[str, Any]:
    """Who asks, and whether keys exist."""
    return _about(request, caller)


@router.post("/session", openapi_extra=described(as_json=NewSession))
async def begin_session(request: Request, reach: AppStateDep) -> Response:
    """Keep an API key in a cookie that scripts cannot read, for what a browser asks without headers."""
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
    """Forget the cookie."""
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(request.scope), httponly=True, samesite="strict")
    return response


@router.get("/system")
async def system(
    request: Request, reach: AppStateDep, surroundings: SystemInfoDep, caller: ClientDep
) -> dict[str, Any]:
    """The deployment and the machine it is on; paths and process ids for admins only."""
    about = await surroundings.system()
    about["limits"]["largest_body_bytes"] = reach.settings.largest_body_bytes
    now = visible_status(caller, reach.service.status())
    status = dataclasses.asdict(now)
    for worker, one in zip(status["workers"], now.workers, strict=True):
        worker["models"] = [model.model_dump() for model in one.models]
    problem = _access(request).keys_problem if caller.admin else None
    about = visible(caller, {**about, "nodes": _nodes(reach)})
    if not caller.admin:
        about["disks"] = [{**disk, "path": None} for disk in about["disks"]]
    return {**status, "version": VERSION, **about, "keys_problem": problem}


@router.get("/models")
async def models(reach: AppStateDep, surroundings: SystemInfoDep, caller: ClientDep) -> dict[str, Any]:
    """Every model file there is, by folder; the path of the model folder for admins only."""
    loaded = {model.name: model for model in await reach.service.models()}
    found = await surroundings.model_files()
    for one in found:
        held = loaded.get(one["name"]) if one["folder"] == "checkpoints" else None
        one["loaded"] = held is not None
        one["bytes"] = one["bytes"] if held is None or one["bytes"] is not None else held.bytes
        one["sampling"] = None if held is None or held.sampling is None else held.sampling.model_dump()
    return {"folder": visible(caller, str(surroundings.model_folder)), "models": found}


@router.get("/models/{folder}/{name:path}")
async def inspect(folder: str, name: str, surroundings: SystemInfoDep, caller: ClientDep) -> dict[str, Any]:
    """What a model file is, for which base model, and whether it is safe."""
    try:
        found: dict[str, Any] = visible(caller, await surroundings.inspect(folder, name))
    except CalotypeError as error:
        if type(error) not in (CalotypeError, NotFoundError):
            raise
        raise type(error)(visible(caller, str(error))) from error
    return found


@router.post("/carried", openapi_extra=described(as_form=CarryingPicture))
async def carried(request: Request) -> CarriedTexts:
    """The workflow inside a picture, whatever its format; nothing is kept."""
    _, files = await form_body(request)
    data = one_file(files, "image")
    if data is None:
        raise RequestError([Problem("image", "is required: a picture as a file")])
    return CarriedTexts(**await asyncio.to_thread(texts_in_picture, data, "the picture"))


@router.get("/uploads")
async def uploads(
    reach: AppStateDep, caller: ClientDep, client: Annotated[str | None, _WHOSE] = None
) -> dict[str, Any]:
    """The pictures that you gave for workflows."""
    owner = caller.acts_for(client)
    given = await reach.workflows.uploads(client=owner) if reach.workflows else ()
    return {
        "uploads": [
            {**upload.file.model_dump(), "bytes": upload.bytes, "at": upload.used_at} for upload in given
        ]
    }


@router.delete("/uploads", status_code=204)
async def remove_upload(
    reach: AppStateDep,
    caller: ClientDep,
    filename: str,
    subfolder: str = "",
    client: Annotated[str | None, _WHOSE] = None,
) -> None:
    """Forget a picture that you gave; workflows that wait for it keep it."""
    owner = caller.acts_for(client)
    if reach.workflows is None:
        raise NotFoundError("no workflows are served here")
    file = PictureFile(filename=filename, subfolder=subfolder, type="input")
    await reach.workflows.remove_upload(file, client=owner)


@router.get("/records")
async def records(
    surroundings: SystemInfoDep,
    caller: ClientDep,
    kind: Annotated[Kind | None, Query(description="Only measurements of this kind.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = 1000,
    values: Annotated[bool, Query(description="With every raw number.")] = False,
) -> Response:
    """Measurements in the deployment's folders of records, the latest first."""
    found = await surroundings.listed_records(kind, limit, values=values)
    return json_response(await asyncio.to_thread(visible, caller, found))


@router.get("/reports")
async def reports(surroundings: SystemInfoDep) -> dict[str, Any]:
    """Report pages in the same folders, the latest first."""
    return {"reports": await surroundings.reports()}


@router.get("/reports/{name:path}", response_class=HTMLResponse)
async def report(name: str, surroundings: SystemInfoDep) -> Response:
    """A report page, which may do nothing but show itself."""
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
