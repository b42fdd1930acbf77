"""ComfyUI's routes about pictures: give one, give a mask for one, look at one. Knows nothing of workflows."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import check_name
from calotype.imaging.image_io import MAX_SIDES
from calotype.serve.auth import Client
from calotype.serve.decoding import operations
from calotype.serve.decoding.operations import Operation
from calotype.serve.http.dependencies import AppStateDep, ClientDep, Images, WorkflowServiceDep
from calotype.serve.http.json_limits import loads
from calotype.serve.http.request_body import MAX_FIELDS, described, is_form
from calotype.serve.request_parsing import rename_error_fields
from calotype.serve.settings import ServeSettings
from calotype.serve.workflow.service import WorkflowService
from calotype.spec.job import PictureFile
from calotype.spec.validation_errors import problems_of, short_repr

router = APIRouter(tags=["ComfyUI"])
_KINDS = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
_DEFAULT_QUALITY = 90
_TYPES = ("input", "output", "temp")


class PictureForm(BaseModel):
    """A picture for workflows to come."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    image: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    subfolder: str = ""
    type: str = "input"
    """`input`, or `temp`."""
    overwrite: str = "false"
    """`true`: another of this name goes; otherwise this one gets a number behind its name."""


class MaskForm(PictureForm):
    """A mask: what is transparent in it will be in the picture it belongs to."""

    original_ref: str
    """Its picture as JSON text: `{"filename", "subfolder", "type"}`; admins may add `client`."""


class OriginalRef(BaseModel):
    """A picture that is here."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    filename: str
    subfolder: str = ""
    type: str = "output"
    client: str | None = None
    """Whose it is, where an admin means another client's."""


class UploadedFile(BaseModel):
    """The name under which a picture was kept."""

    name: str
    subfolder: str
    type: str


BODIES: list[type[BaseModel]] = [PictureForm, MaskForm]


@router.post("/upload/image", openapi_extra=described(as_form=PictureForm))
async def upload_image(
    request: Request, workflows: WorkflowServiceDep, caller: ClientDep, images: Images
) -> UploadedFile:
    """Keep a picture, by name. The same picture of the same name again is the same."""
    fields, name, data = await _form(request)
    await images.checked(data, "image")
    kept = await workflows.upload(
        _place(fields, name), data, client=caller.name, overwrite=_yes(fields.get("overwrite", ""))
    )
    return UploadedFile(name=kept.filename, subfolder=kept.subfolder, type=kept.type)


@router.post("/upload/mask", openapi_extra=described(as_form=MaskForm))
async def upload_mask(
    request: Request, reach: AppStateDep, workflows: WorkflowServiceDep, caller: ClientDep, images: Images
) -> UploadedFile:
    """Keep a picture that is here with a mask as its transparency, under a name of its own."""
    fields, name, data = await _form(request)
    original, owner = _original(fields.get("original_ref", ""), reach.settings)
    picture = await _found(workflows, original, caller, owner)
    mask = await images.changed(data, "image", operations.ALPHA)
    masked = await images.changed(picture, "original_ref", operations.with_alpha(mask))
    kept = await workflows.upload(
        _place(fields, name), masked, client=caller.name, overwrite=_yes(fields.get("overwrite", ""))
    )
    return UploadedFile(name=kept.filename, subfolder=kept.subfolder, type=kept.type)


@router.get(
    "/view",
    response_class=Response,
    responses={
        200: {
            "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}},
            "description": "The file as it was saved, or what was asked for of it.",
        },
        304: {"description": "It is the one that `If-None-Match` names."},
    },
)
async def view(
    workflows: WorkflowServiceDep,
    caller: ClientDep,
    images: Images,
    filename: Annotated[str, Query(description="As a node, or an upload, was told.")],
    subfolder: str = "",
    kind: Annotated[str, Query(alias="type", description="`output`, `temp` or `input`.")] = "output",
    preview: Annotated[str, Query(description="`webp;90`: smaller, in that format and quality.")] = "",
    channel: Annotated[str, Query(description="`rgba`, `rgb`, or `a` for the transparency alone.")] = "rgba",
    client: Annotated[str | None, Query(description="Whose file it is: for admins.")] = None,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """A picture that a workflow made or that was given."""
    file = _file(filename, subfolder, kind)
    data = await _found(workflows, file, caller, client)
    if preview:
        data = await images.changed(data, "filename", _smaller(preview, channel))
    elif channel != "rgba":
        data = await images.changed(data, "filename", _channel(channel))
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in if_none_match:
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = f'filename="{_quoted(file.filename)}"'
    return Response(data, media_type=_media_type(data), headers=headers)


async def _found(workflows: WorkflowService, file: PictureFile, caller: Client, owner: str | None) -> bytes:
    """The file that a client means: its own first; then, for an admin, another client's."""
    return await workflows.picture(file, client=caller.acts_for(owner), others=caller.admin and not owner)


async def _form(request: Request) -> tuple[dict[str, str], str, bytes]:
    """The fields, the picture's name and the picture."""
    if not is_form(request):
        raise RequestError([Problem("body", "is no form; send multipart/form-data with a file `image`")])
    async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form.get("image")
        if not isinstance(file, UploadFile) or not file.filename:
            raise RequestError([Problem("image", "is required: a picture as a file with a name")])
        return fields, file.filename, await file.read()


def _place(fields: dict[str, str], name: str) -> PictureFile:
    return _file(name, fields.get("subfolder", ""), fields.get("type") or "input")


def _file(filename: str, subfolder: str, kind: str) -> PictureFile:
    """A picture's name that can be one; ComfyUI's clients may say its type inside it."""
    for known in _TYPES:
        if filename.endswith(f" [{known}]"):
            filename, kind = filename.removesuffix(f" [{known}]"), known
    if kind not in _TYPES:
        raise RequestError([Problem("type", f"{short_repr(kind)} is none of {', '.join(_TYPES)}", kind)])
    if "/" in check_name("filename", filename):
        raise RequestError([Problem("filename", "holds a slash; folders go into `subfolder`", filename)])
    if subfolder:
        check_name("subfolder", subfolder)
    return PictureFile.model_validate({"filename": filename, "subfolder": subfolder, "type": kind})


def _original(text: str, settings: ServeSettings) -> tuple[PictureFile, str | None]:
    """The image that a mask is for, and whose it is if the form says so."""
    with rename_error_fields({"body": "original_ref"}):
        values = loads(text.encode(), settings)
    try:
        asked = OriginalRef.model_validate(values)
    except ValidationError as error:
        raise RequestError(problems_of(OriginalRef, error)) from None
    return _file(asked.filename, asked.subfolder, asked.type), asked.client


def _smaller(preview: str, channel: str) -> Operation:
    format_name, _, said = preview.partition(";")
    if format_name not in MAX_SIDES:
        format_name = "webp"
    return operations.preview(
        format_name, _quality(said), keeps_alpha=format_name == "webp" and channel != "rgb"
    )


def _quality(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len("100")):
        return _DEFAULT_QUALITY
    return int(text) if 1 <= int(text) <= 100 else _DEFAULT_QUALITY


def _channel(channel: str) -> Operation:
    if channel not in ("rgb", "a"):
        raise RequestError([Problem("channel", f"{short_repr(channel)} is none of rgba, rgb, a", channel)])

    return operations.channel(channel)


def _media_type(data: bytes) -> str:
    return next((kind for mark, kind in _KINDS.items() if data.startswith(mark)), "application/octet-stream")


def _quoted(name: str) -> str:
    """For a header, which is ASCII."""
    return name.encode("ascii", "replace").decode().replace("\\", "_").replace('"', "_")


def _yes(text: Any) -> bool:
    return str(text).lower() in ("true", "1")
