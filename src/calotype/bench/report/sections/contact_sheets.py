"""The section of contact sheets: small copies of the images beside the records, embedded in the page.

An image is matched by its name, the id or name of a point (a sweep writes `pictures/ID.webp`; other formats
work too), or by the record that `calotype generate` embeds, anywhere in `pictures/`. Images that differ in
steps or in guidance alone form a sheet.
"""

from __future__ import annotations

import base64
import io
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from PIL import Image, ImageOps

from calotype.bench.records.store import Fault
from calotype.bench.report.aggregate import PointView, files_of
from calotype.bench.report.document import Picture, Section, Sheet, commands_of
from calotype.core.errors import CalotypeError
from calotype.core.paths import MAX_NAME_LENGTH
from calotype.imaging.image_io import find_record, open_image
from calotype.spec.records.measurement import identity_of

FOLDER = "pictures"
SIDE = 256
_QUALITY = 82
_SUFFIXES = (".png", ".webp", ".jpg", ".jpeg")


@dataclass(frozen=True)
class _Generated:
    """An image and the request it was generated from."""

    picture: Picture
    software: str
    model: str
    request: Mapping[str, Any]
    command: str


def contact_sheets(points: Sequence[PointView], faults: list[Fault]) -> Section:
    """Build the sheets over steps and over guidance; unreadable images are added to `faults`."""
    named = {file: point for point in points if (file := _file_of(point))}
    images = [one for file, point in named.items() if (one := _of_point(file, point, faults))]
    for folder in dict.fromkeys(file.parent / FOLDER for file in files_of(points)):
        others = [file for file in _files_in(folder) if file not in named]
        images += [one for file in others if (one := _of_record(file, faults))]
    sheets = [*_sheets(images, "steps"), *_sheets(images, "cfg")]
    says = "How the settings change the image. The images are scaled down."
    return Section("pictures", "Images", says, sheets=tuple(sheets))


def _file_of(point: PointView) -> Path | None:
    folder = point.rounds[0].file.parent
    # A point's name may contain a prompt, so characters and lengths that file names do not allow.
    names = (point.first.id, point.first.point.replace("/", "_"))
    files = [f"{name}{suffix}" for name in names for suffix in _SUFFIXES]
    files = [file for file in files if len(os.fsencode(file)) <= MAX_NAME_LENGTH]
    places = [place / file for place in (folder, folder / FOLDER) for file in files]
    return next((place for place in places if place.is_file()), None)


def _files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*") if file.suffix.lower() in _SUFFIXES)


def _of_point(file: Path, point: PointView, faults: list[Fault]) -> _Generated | None:
    image, m = _opened(file, faults), point.first
    if image is None:
        return None
    return _Generated(_small(image), str(point.facets["software"]), m.model, m.request or {}, m.command)


def _of_record(file: Path, faults: list[Fault]) -> _Generated | None:
    image = _opened(file, faults)
    try:
        record = find_record(image, str(file)) if image else None
    except CalotypeError as error:
        faults.append(Fault(file, 1, str(error)))
        return None
    # A contact sheet is not a single image.
    if image is None or record is None or record.grid:
        return None
    command = f"calotype generate --from {shlex.quote(str(file))}"
    return _Generated(_small(image), record.preset, record.model.reference, record.request, command)


def _opened(file: Path, faults: list[Fault]) -> Image.Image | None:
    try:
        return open_image(file)
    except CalotypeError as error:
        faults.append(Fault(file, 1, str(error)))
        return None


def _small(image: Image.Image) -> Picture:
    shrunk = ImageOps.contain(image, (SIDE, SIDE)) if max(image.size) > SIDE else image
    packed = io.BytesIO()
    shrunk.convert("RGB").save(packed, "WEBP", quality=_QUALITY)
    text = base64.b64encode(packed.getvalue()).decode("ascii")
    return Picture("", f"data:image/webp;base64,{text}", shrunk.size)


def _sheets(images: Sequence[_Generated], axis: Literal["steps", "cfg"]) -> Iterator[Sheet]:
    groups: dict[str, dict[float, _Generated]] = {}
    for one in images:
        if one.request.get(axis) is not None:
            # The first image of a batch is the same at any batch size.
            rest = {key: value for key, value in one.request.items() if key not in (axis, "count")}
            key = identity_of({"request": rest, "model": one.model, "software": one.software})
            groups.setdefault(key, {}).setdefault(one.request[axis], one)
    for group in groups.values():
        if len(group) > 1:
            ordered = [(value, group[value]) for value in sorted(group)]
            yield Sheet(
                "By steps" if axis == "steps" else "By guidance (cfg)",
                _shared(ordered[0][1], axis),
                tuple(replace(one.picture, caption=_format_value(axis, value)) for value, one in ordered),
                commands_of(one.command for _, one in ordered),
            )


def _format_value(axis: Literal["steps", "cfg"], value: float) -> str:
    if axis == "cfg":
        return f"cfg {value:g}"
    return "1 step" if value == 1 else f"{value} steps"


def _shared(one: _Generated, axis: Literal["steps", "cfg"]) -> str:
    request = one.request
    other: Literal["steps", "cfg"] = "cfg" if axis == "steps" else "steps"
    parts = [one.model, one.software, f"{request.get('width')}×{request.get('height')}"]
    parts += [_format_value(other, request[other])] if request.get(other) is not None else []
    parts += [f"seed {request['seed']}"] if request.get("seed") is not None else []
    unknown = (
        " The weights are random, so the images do not depend on the prompt."
        if one.model.startswith("random:")
        else ""
    )
    return f"{', '.join(parts)}: “{request.get('prompt', '')}”.{unknown}"
