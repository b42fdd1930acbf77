"""Pictures as workflows save them: names from a prefix, the graph inside. Knows nothing of where they go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from calotype.core.compression import PNG_STRATEGY
from calotype.core.paths import check_name

if TYPE_CHECKING:
    from PIL.Image import Image

_TIMES = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}


def filled_prefix(prefix: str, picture: Image) -> str:
    """A prefix with ComfyUI's `%width%`, `%year%` and the like filled in; it cannot leave its folder."""
    now = datetime.now().astimezone()
    values = {name: now.strftime(form) for name, form in _TIMES.items()}
    values |= {"width": str(picture.width), "height": str(picture.height)}
    for name, value in values.items():
        prefix = prefix.replace(f"%{name}%", value)
    return check_name("filename_prefix", prefix)


def png_with_graph(picture: Image, prompt: Mapping[str, Any], extra_pnginfo: Mapping[str, Any]) -> bytes:
    """A PNG file that holds the graph that made it, in the keys that ComfyUI writes and reads."""
    from PIL.PngImagePlugin import PngInfo  # noqa: PLC0415 - nobody pays for it who saves nothing

    info = PngInfo()
    for key, value in {"prompt": prompt, **extra_pnginfo}.items():
        info.add_text(key, json.dumps(value))
    buffer = BytesIO()
    picture.save(buffer, "PNG", pnginfo=info, compress_type=PNG_STRATEGY)
    return buffer.getvalue()
