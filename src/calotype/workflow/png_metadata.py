"""Builds the file names and PNG bytes of saved images, with the graph in their metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from calotype.core.errors import Problem, RequestError
from calotype.core.files import PNG_STRATEGY
from calotype.core.paths import MAX_NAME_LENGTH, check_name
from calotype.workflow.input_coercion import short

if TYPE_CHECKING:
    from PIL.Image import Image

_TIMES = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}
_MAX_SIDE_LENGTH = 99_999
_MAX_NUMBERS_LENGTH = "_9999999999_99999.png"
"""The longest suffix that a host appends to a prefix: the numbers of the job and of its image."""


def filled_prefix(prefix: str, picture: Image) -> str:
    """Fill in ComfyUI's `%width%`, `%year%` and similar placeholders; the result cannot leave its folder."""
    return _filled(prefix, picture.width, picture.height)


def prefix_problem(prefix: str) -> str | None:
    """Why images cannot be saved under a prefix or fetched by the resulting name, or None."""
    try:
        _filled(prefix, _MAX_SIDE_LENGTH, _MAX_SIDE_LENGTH)
    except RequestError as error:
        return "; ".join(f"{problem.field}: {problem.message}" for problem in error.problems)
    return None


def _filled(prefix: str, width: int, height: int) -> str:
    now = datetime.now().astimezone()
    values = {name: now.strftime(form) for name, form in _TIMES.items()}
    values |= {"width": str(width), "height": str(height)}
    for name, value in values.items():
        prefix = prefix.replace(f"%{name}%", value)
    check_name("filename_prefix", prefix)
    # An image is fetched by folder and name, each of which must be a valid name.
    _, _, name = prefix.rpartition("/")
    check_name("filename_prefix", name)
    longest = MAX_NAME_LENGTH - len(_MAX_NUMBERS_LENGTH)
    if len(os.fsencode(name)) > longest:
        rule = f"{short(name)} is {len(os.fsencode(name))} bytes long, and numbers are appended to it"
        raise RequestError([Problem("filename_prefix", f"{rule}; the limit is {longest}", prefix)])
    return prefix


def png_with_graph(picture: Image, prompt: Mapping[str, Any], extra_pnginfo: Mapping[str, Any]) -> bytes:
    """Encode a PNG with the graph that created it, under the keys that ComfyUI writes and reads."""
    from PIL.PngImagePlugin import PngInfo  # noqa: PLC0415 - only where images are saved

    info = PngInfo()
    for key, value in {"prompt": prompt, **extra_pnginfo}.items():
        info.add_text(key, json.dumps(value))
    buffer = BytesIO()
    picture.save(buffer, "PNG", pnginfo=info, compress_type=PNG_STRATEGY)
    return buffer.getvalue()
