"""A package of nodes that need no torch: tiny pictures, and everything that can go wrong in a worker."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from PIL import Image

from calotype.workflow.node_api import (
    COMBO,
    IMAGE,
    INT,
    STRING,
    Context,
    Input,
    NodeDef,
    Output,
    Result,
    Step,
)


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    return buffer.getvalue()


def paint(
    context: Context, width: int, height: int, seed: int, steps: int
) -> Generator[Step, None, tuple[Image.Image]]:
    image = Image.new("RGB", (width, height), (seed % 256, 40, 90))
    for step in range(steps):
        yield Step(step + 1, steps, _jpeg(image))
    return (image,)


def load(context: Context, image: str) -> tuple[Image.Image]:
    with Image.open(io.BytesIO(context.read_input(image))) as found:
        return (found.convert("RGB"),)


def hold(context: Context, image: Image.Image, until: str) -> Generator[Step, None, tuple[Image.Image]]:
    """Step after step, until a file is there."""
    Path(f"{until}.holding").touch()
    while not Path(until).exists():
        yield Step(1, 2)
        time.sleep(0.005)
    return (image,)


def die_once(context: Context, image: Image.Image, mark: str) -> tuple[Image.Image]:
    """Takes its worker along, the first time."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return (image,)


def die(context: Context, image: Image.Image) -> tuple[Image.Image]:
    """Takes its worker along, each time."""
    os.kill(os.getpid(), signal.SIGKILL)
    return (image,)


def fail(context: Context, image: Image.Image) -> tuple[Image.Image]:
    raise RuntimeError("it fails as it was told to")


def save(context: Context, images: Image.Image, filename_prefix: str) -> Result:
    return Result((), {"images": [context.save(images, filename_prefix)]})


def preview(context: Context, images: Image.Image) -> Result:
    return Result((), {"images": [context.save(images, "preview", "temp")]})


def show_nonsense(context: Context, image: Image.Image) -> Result:
    return Result((), {"nonsense": [object()]})


_IMAGE = Input("image", IMAGE)
_OUT = (Output(IMAGE),)


def _pictures(catalogue: Any) -> Any:
    return catalogue.pictures()


def _contents(context: Context, inputs: Any) -> str:
    return hashlib.sha256(context.read_input(inputs["image"])).hexdigest()


NODES = [
    NodeDef(
        "SmallPaint",
        paint,
        inputs=(
            Input("width", INT, default=16, minimum=1, maximum=100_000),
            Input("height", INT, default=8, minimum=1, maximum=100_000),
            Input("seed", INT, default=0, minimum=0, maximum=2**64 - 1),
            Input("steps", INT, default=3, minimum=1, maximum=10_000),
        ),
        outputs=_OUT,
    ),
    NodeDef(
        "SmallLoad",
        load,
        inputs=(Input("image", COMBO, choices=_pictures, upload=True),),
        outputs=_OUT,
        changes=_contents,
    ),
    NodeDef("SmallHold", hold, inputs=(_IMAGE, Input("until", STRING)), outputs=_OUT),
    NodeDef("SmallDie", die_once, inputs=(_IMAGE, Input("mark", STRING)), outputs=_OUT),
    NodeDef("SmallDeadly", die, inputs=(_IMAGE,), outputs=_OUT),
    NodeDef("SmallFail", fail, inputs=(_IMAGE,), outputs=_OUT),
    NodeDef(
        "SmallSave",
        save,
        inputs=(Input("images", IMAGE), Input("filename_prefix", STRING, default="small")),
        is_output=True,
    ),
    NodeDef("SmallPreview", preview, inputs=(Input("images", IMAGE),), is_output=True),
    NodeDef("SmallNonsense", show_nonsense, inputs=(_IMAGE,), is_output=True),
]
