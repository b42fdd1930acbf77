"""ComfyUI's routes for images: upload an image or a mask, and view files."""

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
    """An image to upload for workflows."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    image: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    subfolder: str = ""
    type: str = "input"
    """`input`, or `temp`."""
    overwrite: str = "false"
    """`true` replaces another image of this name; otherwise the new name gets a number."""


class MaskForm(PictureForm):
    """A mask to upload: its transparency is applied to the image it belongs to."""

    original_ref: str
    """The mask's image as JSON text: `{"filename", "subfolder", "type"}`; admins may add `client`."""


class OriginalRef(BaseModel):
    """Names an image on the server."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    filename: str
    subfolder: str = ""
    type: str = "output"
    client: str | None = None
    """The owner, if an admin means another client's image."""


class UploadedFile(BaseModel):
    """The name of a stored upload."""

    name: str
    subfolder: str
    type: str


BODIES: list[type[BaseModel]] = [PictureForm, MaskForm]


@router.post("/upload/image", openapi_extra=described(as_form=PictureForm))
async def upload_image(
    request: Request, workflows: WorkflowServiceDep, caller: ClientDep, images: Images
) -> UploadedFile:
    """Store an image by name. The same image under the same name is stored once."""
    fields, name, data = await _form(request)
    await images.checked(data, "image")
    stored = await workflows.upload(
        _target_file(fields, name), data, client=caller.name, overwrite=_is_true(fields.get("overwrite", ""))
    )
    return UploadedFile(name=stored.filename, subfolder=stored.subfolder, type=stored.type)


@router.post("/upload/mask", openapi_extra=described(as_form=MaskForm))
async def upload_mask(
    request: Request, reach: AppStateDep, workflows: WorkflowServiceDep, caller: ClientDep, images: Images
) -> UploadedFile:
    """Store an existing image with a mask as its transparency, under a new name."""
    fields, name, data = await _form(request)
    original, owner = _original(fields.get("original_ref", ""), reach.settings)
    picture = await _read(workflows, original, caller, owner)
    mask = await images.changed(data, "image", operations.ALPHA)
    masked = await images.changed(picture, "original_ref", operations.with_alpha(mask))
    stored = await workflows.upload(
        _target_file(fields, name),
        masked,
        client=caller.name,
        overwrite=_is_true(fields.get("overwrite", "")),
    )
    return UploadedFile(name=stored.filename, subfolder=stored.subfolder, type=stored.type)


@router.get(
    "/view",
    response_class=Response,
    responses={
        200: {
            "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}},
            "description": "The saved file, or the requested preview or channel.",
        },
        304: {"description": "The file matches `If-None-Match`."},
    },
)
async def view(
    workflows: WorkflowServiceDep,
    caller: ClientDep,
    images: Images,
    filename: Annotated[str, Query(description="As a node or an upload returned it.")],
    subfolder: str = "",
    kind: Annotated[str, Query(alias="type", description="`output`, `temp` or `input`.")] = "output",
    preview: Annotated[
        str, Query(description="Format and quality of a smaller image, such as `webp;90`.")
    ] = "",
    channel: Annotated[str, Query(description="`rgba`, `rgb`, or `a` for the alpha channel only.")] = "rgba",
    client: Annotated[str | None, Query(description="The owner of the file: for admins.")] = None,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """Return an image that a workflow saved or a client uploaded."""
    file = _file(filename, subfolder, kind)
    data = await _read(workflows, file, caller, client)
    if preview:
        data = await images.changed(data, "filename", _preview(preview, channel))
    elif channel != "rgba":
        data = await images.changed(data, "filename", _channel(channel))
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in if_none_match:
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = f'filename="{_quoted(file.filename)}"'
    return Response(data, media_type=_media_type(data), headers=headers)


async def _read(workflows: WorkflowService, file: PictureFile, caller: Client, owner: str | None) -> bytes:
    """Read a file: the client's own first; then, for an admin, another client's."""
    return await workflows.picture(file, client=caller.acts_for(owner), others=caller.admin and not owner)


async def _form(request: Request) -> tuple[dict[str, str], str, bytes]:
    """Return the fields, the image's name and its data."""
    if not is_form(request):
        raise RequestError([Problem("body", "is not a form; send multipart/form-data with a file `image`")])
    async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form.get("image")
        if not isinstance(file, UploadFile) or not file.filename:
            raise RequestError([Problem("image", "is required: an image as a file with a name")])
        return fields, file.filename, await file.read()


def _target_file(fields: dict[str, str], name: str) -> PictureFile:
    return _file(name, fields.get("subfolder", ""), fields.get("type") or "input")


def _file(filename: str, subfolder: str, kind: str) -> PictureFile:
    """Validate the name of an image; ComfyUI's clients may append its type."""
    for known in _TYPES:
        if filename.endswith(f" [{known}]"):
            filename, kind = filename.removesuffix(f" [{known}]"), known
    if kind not in _TYPES:
        raise RequestError(
            [Problem("type", f"{short_repr(kind)} is unknown; use one of {', '.join(_TYPES)}", kind)]
        )
    if "/" in check_name("filename", filename):
        raise RequestError([Problem("filename", "contains a slash; put folders into `subfolder`", filename)])
    if subfolder:
        check_name("subfolder", subfolder)
    return PictureFile.model_validate({"filename": filename, "subfolder": subfolder, "type": kind})


def _original(text: str, settings: ServeSettings) -> tuple[PictureFile, str | None]:
    """Return the image that a mask is for, and its owner if the form names one."""
    with rename_error_fields({"body": "original_ref"}):
        values = loads(text.encode(), settings)
    try:
        original = OriginalRef.model_validate(values)
    except ValidationError as error:
        raise RequestError(problems_of(OriginalRef, error)) from None
    return _file(original.filename, original.subfolder, original.type), original.client


def _preview(preview: str, channel: str) -> Operation:
    format_name, _, quality = preview.partition(";")
    if format_name not in MAX_SIDES:
        format_name = "webp"
    return operations.preview(
        format_name, _quality(quality), keeps_alpha=format_name == "webp" and channel != "rgb"
    )


def _quality(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len("100")):
        return _DEFAULT_QUALITY
    return int(text) if 1 <= int(text) <= 100 else _DEFAULT_QUALITY


def _channel(channel: str) -> Operation:
    if channel not in ("rgb", "a"):
        raise RequestError(
            [Problem("channel", f"{short_repr(channel)} is unknown; use one of rgba, rgb, a", channel)]
        )

    return operations.channel(channel)


def _media_type(data: bytes) -> str:
    return next(
        (kind for magic, kind in _KINDS.items() if data.startswith(magic)), "application/octet-stream"
    )


def _quoted(name: str) -> str:
    """Quote a name for a header, which is ASCII."""
    return name.encode("ascii", "replace").decode().replace("\\", "_").replace('"', "_")


def _is_true(text: Any) -> bool:
    return str(text).lower() in ("true", "1")
