"""Reads a workflow from API JSON, editor JSON or an image with embedded metadata, detected by content."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image, UnidentifiedImageError

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.workflow.import_editor import to_prompt, unnamed_values
from calotype.workflow.node_api import NodeDef

JSON = dict[str, Any]
IMAGE_FORMATS = ("PNG", "WEBP", "JPEG")
_STARTS = (b"\x89PNG", b"RIFF", b"\xff\xd8")
_KEYS = ("prompt", "workflow")
_EXIF_FOLDER = 0x8769


@dataclass(frozen=True)
class Opened:
    """A graph in API format, and its editor file if there is one."""

    prompt: JSON
    workflow: JSON | None = None
    unnamed: tuple[Problem, ...] = ()
    """Values of the editor's file that the graph lacks, because the names of their inputs are unknown."""


def open_workflow(data: bytes, name: str, registry: Mapping[str, NodeDef]) -> Opened:
    """Read the workflow in `data`; `name` is for messages."""
    if data.startswith(_STARTS):
        return _from_parts(_read_image_parts(data, name), name, registry)
    return _from_json(_parsed(data, name), name, registry)


def _from_json(value: object, name: str, registry: Mapping[str, NodeDef]) -> Opened:
    if not isinstance(value, dict):
        raise RequestError([Problem("workflow", f"{name} holds no JSON object of nodes")])
    if isinstance(value.get("nodes"), list):
        return Opened(to_prompt(value, registry), value, tuple(unnamed_values(value, registry)))
    inner = value.get("prompt")
    # A saved request body of `/prompt`.
    if isinstance(inner, dict) and "class_type" not in inner:
        extra = ((value.get("extra_data") or {}).get("extra_pnginfo") or {}).get("workflow")
        return Opened(inner, extra if isinstance(extra, dict) else None)
    if any(isinstance(node, dict) and "class_type" in node for node in value.values()):
        return Opened(value)
    rule = f"{name} is JSON but no workflow: neither nodes with a class_type nor an editor's list of nodes"
    raise RequestError([Problem("workflow", rule)])


def _from_parts(parts: Mapping[str, JSON], name: str, registry: Mapping[str, NodeDef]) -> Opened:
    """`prompt` is the graph that ran, so it takes precedence; editors change `workflow` after a run."""
    if "prompt" in parts:
        return Opened(parts["prompt"], parts.get("workflow"))
    return _from_json(parts["workflow"], name, registry)


def _parsed(data: bytes | str, name: str) -> object:
    try:
        return json.loads(data)
    # Deep nesting raises RecursionError, invalid bytes and JSON raise ValueError.
    except (RecursionError, ValueError) as error:
        rule = f"{name} is neither an image nor JSON that can be read: {error}"
        raise RequestError([Problem("workflow", rule)]) from None


def texts_in_picture(data: bytes, name: str) -> dict[str, str]:
    """The texts that an image holds under `prompt` and `workflow`, unparsed."""
    return _read_metadata(data, name)[0]


def _read_image_parts(data: bytes, name: str) -> dict[str, JSON]:
    texts, has_record = _read_metadata(data, name)
    parts = {key: _parsed(text, f"{key} in {name}") for key, text in texts.items()}
    objects = {key: value for key, value in parts.items() if isinstance(value, dict) and value}
    if not objects:
        hint = f"; recreate it with `calotype generate --from {name}`" if has_record else ""
        raise NotFoundError(f"{name} holds no workflow{hint or ': programs that edit images remove it'}")
    return objects


def _read_metadata(data: bytes, name: str) -> tuple[dict[str, str], bool]:
    """The texts in an image's metadata, and whether it also has a record of `calotype generate`."""
    try:
        with warnings.catch_warnings():
            # Only the metadata is read, so a large image is no risk.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
                return dict(_metadata_texts(image)), "calotype" in image.info
    # Pillow raises many types of errors for damaged files.
    except Exception as error:
        # For an unknown format Pillow's message only names the buffer object.
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "its content has another format" if unknown else str(error)
        rule = f"{name} is not a PNG, WebP or JPEG that can be read: {reason}"
        raise RequestError([Problem("workflow", rule)]) from error


def _metadata_texts(image: Image.Image) -> Iterator[tuple[str, str]]:
    for key in _KEYS:
        if isinstance(image.info.get(key), str):
            yield key, image.info[key]
    # Formats without named text store it in any EXIF field, prefixed with the name.
    exif = image.getexif() if image.format != "PNG" else {}
    values = [*exif.values(), *exif.get_ifd(_EXIF_FOLDER).values()] if isinstance(exif, Image.Exif) else []
    for value in values:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        text = text.removeprefix("ASCII\0\0\0").removeprefix("UNICODE\0").strip("\0 ")
        name, colon, rest = text.partition(":")
        if colon and name.lower() in _KEYS:
            yield name.lower(), rest
