"""A workflow out of whatever holds one: API or editor JSON, or a picture that carries it. By content.

Knows nothing of where the bytes come from.
"""

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
    """A graph in API format, and the editor's file it came with, if any."""

    prompt: JSON
    workflow: JSON | None = None
    unnamed: tuple[Problem, ...] = ()
    """Values of the editor's file that are missing in the graph: the names of their inputs are unknown."""


def open_workflow(data: bytes, name: str, registry: Mapping[str, NodeDef]) -> Opened:
    """The workflow in some bytes; `name` is for messages."""
    if data.startswith(_STARTS):
        return _from_parts(_in_picture(data, name), name, registry)
    return _from_json(_parsed(data, name), name, registry)


def _from_json(value: object, name: str, registry: Mapping[str, NodeDef]) -> Opened:
    if not isinstance(value, dict):
        raise RequestError([Problem("workflow", f"{name} holds no JSON object of nodes")])
    if isinstance(value.get("nodes"), list):
        return Opened(to_prompt(value, registry), value, tuple(unnamed_values(value, registry)))
    inner = value.get("prompt")
    # What is sent to `/prompt`, saved as it was.
    if isinstance(inner, dict) and "class_type" not in inner:
        extra = ((value.get("extra_data") or {}).get("extra_pnginfo") or {}).get("workflow")
        return Opened(inner, extra if isinstance(extra, dict) else None)
    if any(isinstance(node, dict) and "class_type" in node for node in value.values()):
        return Opened(value)
    rule = f"{name} is JSON but no workflow: neither nodes with a class_type nor an editor's list of nodes"
    raise RequestError([Problem("workflow", rule)])


def _from_parts(parts: Mapping[str, JSON], name: str, registry: Mapping[str, NodeDef]) -> Opened:
    """`prompt` is what ran, so it goes first; editors change `workflow` after a run."""
    if "prompt" in parts:
        return Opened(parts["prompt"], parts.get("workflow"))
    return _from_json(parts["workflow"], name, registry)


def _parsed(data: bytes | str, name: str) -> object:
    try:
        return json.loads(data)
    # Deep nesting ends in the one, bad bytes and bad JSON in the other.
    except (RecursionError, ValueError) as error:
        rule = f"{name} is neither a picture nor JSON that can be read: {error}"
        raise RequestError([Problem("workflow", rule)]) from None


def texts_in_picture(data: bytes, name: str) -> dict[str, str]:
    """What a picture carries under `prompt` and `workflow`, as it was written there."""
    return _noted(data, name)[0]


def _in_picture(data: bytes, name: str) -> dict[str, JSON]:
    notes, ours = _noted(data, name)
    parts = {key: _parsed(text, f"{key} in {name}") for key, text in notes.items()}
    found = {key: value for key, value in parts.items() if isinstance(value, dict) and value}
    if not found:
        hint = f"; make it again with `calotype generate --from {name}`" if ours else ""
        raise NotFoundError(f"{name} holds no workflow{hint or ': programs that edit pictures drop it'}")
    return found


def _noted(data: bytes, name: str) -> tuple[dict[str, str], bool]:
    """The notes beside the pixels, and whether `calotype generate` wrote some of its own."""
    try:
        with warnings.catch_warnings():
            # Only the notes beside the pixels are read.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
                return dict(_notes(image)), "calotype" in image.info
    # Damaged files make Pillow's readers raise nearly anything.
    except Exception as error:
        # For an unknown format Pillow only repeats what it was given.
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "its contents are of another kind" if unknown else str(error)
        rule = f"{name} is not a PNG, WebP or JPEG that can be read: {reason}"
        raise RequestError([Problem("workflow", rule)]) from error


def _notes(image: Image.Image) -> Iterator[tuple[str, str]]:
    for key in _KEYS:
        if isinstance(image.info.get(key), str):
            yield key, image.info[key]
    # Formats without named text have it in EXIF fields that start with the name, whichever the field.
    exif = image.getexif() if image.format != "PNG" else {}
    values = [*exif.values(), *exif.get_ifd(_EXIF_FOLDER).values()] if isinstance(exif, Image.Exif) else []
    for value in values:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        text = text.removeprefix("ASCII\0\0\0").removeprefix("UNICODE\0").strip("\0 ")
        name, colon, rest = text.partition(":")
        if colon and name.lower() in _KEYS:
            yield name.lower(), rest
