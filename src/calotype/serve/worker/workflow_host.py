"""What a worker offers to the nodes of one workflow. Knows nothing of graphs, turns or messages' ways."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from calotype.core.errors import NotFoundError, near_matches
from calotype.core.paths import check_name
from calotype.serve.messages import MadeFile, RunWorkflow
from calotype.spec.job import PictureFile
from calotype.workflow.interface import Catalogue, Kind, SavedPicture

if TYPE_CHECKING:
    from PIL.Image import Image

_TIMES = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}


@dataclass
class WorkflowHost:
    """A `Context` for one workflow: its own pictures to read, and a place for those it saves."""

    work: RunWorkflow
    attachments: Sequence[bytes]
    catalogue: Catalogue
    models: Any
    _saved: list[tuple[MadeFile, bytes]] = field(default_factory=list)
    _count: int = 0

    @property
    def prompt(self) -> Mapping[str, Any]:
        return self.work.prompt

    @property
    def extra_pnginfo(self) -> Mapping[str, Any]:
        return self.work.extra_pnginfo

    def read_input(self, name: str) -> bytes:
        """Of the pictures that came with the workflow."""
        if name not in self.work.inputs:
            raise NotFoundError(
                f"no picture {name[:80]!r} came with it; {near_matches(name, self.work.inputs)}"
            )
        return self.attachments[self.work.inputs.index(name)]

    def save(self, picture: Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        """Make a file of a picture; its name holds the job's number and its own, so no two are alike."""
        self._count += 1
        stem = _filled(prefix, picture)
        path = PurePosixPath(check_name("filename_prefix", stem))
        file = PictureFile(
            filename=f"{path.name}_{self.work.sequence:05}_{self._count:02}.png",
            subfolder="" if path.parent == PurePosixPath(".") else str(path.parent),
            type=kind,
        )
        made = MadeFile(file=file, width=picture.width, height=picture.height)
        self._saved.append((made, self._encoded(picture, kind)))
        return {"filename": file.filename, "subfolder": file.subfolder, "type": kind}

    def take_saved(self) -> list[tuple[MadeFile, bytes]]:
        """The files made since this was asked last."""
        saved, self._saved = self._saved, []
        return saved

    def restart(self) -> None:
        """It is run again: the same pictures get the same names."""
        self._count = 0

    def _encoded(self, picture: Image, kind: Kind) -> bytes:
        from PIL.PngImagePlugin import PngInfo  # noqa: PLC0415 - nobody pays for it who makes no picture

        info = PngInfo()
        info.add_text("prompt", json.dumps(self.work.prompt))
        for key, value in self.work.extra_pnginfo.items():
            info.add_text(key, json.dumps(value))
        buffer = BytesIO()
        # A preview is looked at once: small is less important than soon.
        picture.save(buffer, "PNG", pnginfo=info, compress_level=1 if kind == "temp" else 4)
        return buffer.getvalue()


def _filled(prefix: str, picture: Image) -> str:
    """With ComfyUI's `%width%`, `%year%` and the like filled in."""
    now = datetime.now().astimezone()
    values = {name: now.strftime(form) for name, form in _TIMES.items()}
    values |= {"width": str(picture.width), "height": str(picture.height)}
    for name, value in values.items():
        prefix = prefix.replace(f"%{name}%", value)
    return prefix
