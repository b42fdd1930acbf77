"""Contact sheets of the pictures beside the records, small and inside the page. Makes no picture.

A picture is known by its name, `pictures/ID.webp` as a sweep leaves it or any other format, with a point's id
or name, or by the record that `calotype generate` left in it, anywhere in `pictures/`. Those that differ in
steps or in guidance alone are a sheet.
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
class _Made:
    """A picture and what was asked for."""

    picture: Picture
    software: str
    model: str
    request: Mapping[str, Any]
    command: str


def contact_sheets(points: Sequence[PointView], faults: list[Fault]) -> Section:
    """Over steps and over guidance; what cannot be read is added to `faults`."""
    named = {file: point for point in points if (file := _file_of(point))}
    made = [one for file, point in named.items() if (one := _of_point(file, point, faults))]
    for folder in dict.fromkeys(file.parent / FOLDER for file in files_of(points)):
        others = [file for file in _files_in(folder) if file not in named]
        made += [one for file in others if (one := _of_record(file, faults))]
    sheets = [*_sheets(made, "steps"), *_sheets(made, "cfg")]
    says = "What the settings do to the picture; made smaller."
    return Section("pictures", "Pictures", says, sheets=tuple(sheets))


def _file_of(point: PointView) -> Path | None:
    folder = point.rounds[0].file.parent
    # A point's name may hold what a file's may not, and be longer: prompts are varied too.
    names = (point.first.id, point.first.point.replace("/", "_"))
    files = [f"{name}{suffix}" for name in names for suffix in _SUFFIXES]
    files = [file for file in files if len(os.fsencode(file)) <= MAX_NAME_LENGTH]
    places = [place / file for place in (folder, folder / FOLDER) for file in files]
    return next((place for place in places if place.is_file()), None)


def _files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*") if file.suffix.lower() in _SUFFIXES)


def _of_point(file: Path, point: PointView, faults: list[Fault]) -> _Made | None:
    image, m = _opened(file, faults), point.first
    if image is None:
        return None
    return _Made(_small(image), str(point.facets["software"]), m.model, m.request or {}, m.command)


def _of_record(file: Path, faults: list[Fault]) -> _Made | None:
    image = _opened(file, faults)
    try:
        record = find_record(image, str(file)) if image else None
    except CalotypeError as error:
        faults.append(Fault(file, 1, str(error)))
        return None
    # A contact sheet is no picture of its own.
    if image is None or record is None or record.grid:
        return None
    again = f"calotype generate --from {shlex.quote(str(file))}"
    return _Made(_small(image), record.preset, record.model.reference, record.request, again)


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


def _sheets(made: Sequence[_Made], axis: Literal["steps", "cfg"]) -> Iterator[Sheet]:
    groups: dict[str, dict[float, _Made]] = {}
    for one in made:
        if one.request.get(axis) is not None:
            # The first picture of a batch is the same in any batch.
            rest = {key: value for key, value in one.request.items() if key not in (axis, "count")}
            key = identity_of({"request": rest, "model": one.model, "software": one.software})
            groups.setdefault(key, {}).setdefault(one.request[axis], one)
    for group in groups.values():
        if len(group) > 1:
            ordered = [(value, group[value]) for value in sorted(group)]
            yield Sheet(
                "By steps" if axis == "steps" else "By guidance (cfg)",
                _shared(ordered[0][1], axis),
                tuple(replace(one.picture, caption=_told(axis, value)) for value, one in ordered),
                commands_of(one.command for _, one in ordered),
            )


def _told(axis: Literal["steps", "cfg"], value: float) -> str:
    if axis == "cfg":
        return f"cfg {value:g}"
    return "1 step" if value == 1 else f"{value} steps"


def _shared(one: _Made, axis: Literal["steps", "cfg"]) -> str:
    asked = one.request
    other: Literal["steps", "cfg"] = "cfg" if axis == "steps" else "steps"
    parts = [one.model, one.software, f"{asked.get('width')}×{asked.get('height')}"]
    parts += [_told(other, asked[other])] if asked.get(other) is not None else []
    parts += [f"seed {asked['seed']}"] if asked.get("seed") is not None else []
    unknown = (
        " Random weights know no prompt: alike is all they can be." if one.model.startswith("random:") else ""
    )
    return f"{', '.join(parts)}: “{asked.get('prompt', '')}”.{unknown}"
