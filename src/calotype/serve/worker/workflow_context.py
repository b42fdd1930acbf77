"""The context that a worker gives to the nodes of one workflow: inputs, models and saved images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.serve.ipc.messages import MadeFile, RunWorkflow
from calotype.spec.job import PictureFile
from calotype.workflow.node_api import Catalogue, Kind, SavedPicture
from calotype.workflow.png_metadata import filled_prefix, png_with_graph

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass
class WorkerWorkflowContext:
    """A `Context` for one workflow: its input images, and the images that it saves."""

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
        """Return an image that came with the workflow."""
        if name not in self.work.inputs:
            raise NotFoundError(
                f"no image {name[:80]!r} came with the workflow; {did_you_mean(name, self.work.inputs)}"
            )
        return self.attachments[self.work.inputs.index(name)]

    def save(self, picture: Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        """Encode an image; its file name has the job's number and a counter, so it is unique."""
        self._count += 1
        path = PurePosixPath(filled_prefix(prefix, picture))
        file = PictureFile(
            filename=f"{path.name}_{self.work.sequence:05}_{self._count:02}.png",
            subfolder="" if path.parent == PurePosixPath(".") else str(path.parent),
            type=kind,
        )
        made = MadeFile(file=file, width=picture.width, height=picture.height)
        self._saved.append((made, png_with_graph(picture, self.prompt, self.extra_pnginfo)))
        return {"filename": file.filename, "subfolder": file.subfolder, "type": kind}

    def take_saved(self) -> list[tuple[MadeFile, bytes]]:
        """Return the files saved since the last call."""
        saved, self._saved = self._saved, []
        return saved

    def discard_unsent(self) -> None:
        """Drop unsent files: their node runs again and saves them under the same names."""
        self._count -= len(self.take_saved())

    def restart(self) -> None:
        """Reset the counter: the workflow runs again, and the same images get the same names."""
        self._count = 0
