"""Draws the contact sheet: a row for each request, a column for each preset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten

from PIL import Image

from calotype.imaging.contact_sheet import Axis, contact_sheet
from calotype.spec.generate_request import GenerateRequest

MAX_ROWS = 32
_MAX_SIDE = 256
_MAX_LABEL_LENGTH = 56


def thumbnails(images: Sequence[Image.Image]) -> list[Image.Image]:
    """Return small copies of the first images, as many as a sheet shows."""
    small = [image.copy() for image in images[:MAX_ROWS]]
    for image in small:
        image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    return small


def sheet(
    columns: Mapping[str, Sequence[Image.Image]], requests: Sequence[GenerateRequest], caption: str
) -> Image.Image:
    """Draw columns of thumbnails, in the order of the requests."""
    shown = requests[:MAX_ROWS]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    repeated = len({request.prompt for request in requests}) < len(requests)
    labels = tuple(_label(request, with_seed=repeated) for request in shown)
    if len(shown) < len(requests):
        caption = f"{caption} · the first {len(shown)} of {len(requests)} images"
    return contact_sheet(rows, Axis("preset", tuple(columns)), Axis("prompt", labels), caption)


def _label(request: GenerateRequest, *, with_seed: bool) -> str:
    prompt = shorten(request.prompt, _MAX_LABEL_LENGTH, placeholder=" …")
    return f"{prompt} · seed {request.seed}" if with_seed else prompt
