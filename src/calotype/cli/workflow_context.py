"""The node context of `calotype run`: engines, input images from a folder, PNG files to another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calotype.cli.progress import interruptible
from calotype.core.errors import NotFoundError
from calotype.core.paths import atomic_write, resolve_inside
from calotype.workflow.file_catalogue import FolderCatalogue
from calotype.workflow.input_coercion import nearest
from calotype.workflow.load import Opened
from calotype.workflow.node_api import Kind, SavedPicture
from calotype.workflow.nodes.model_provider import KeptEngines, NodeModels
from calotype.workflow.png_metadata import filled_prefix, png_with_graph

if TYPE_CHECKING:
    from PIL.Image import Image

    from calotype.cli.workflow_run import WorkflowOptions


class FolderHost:
    """A `Context` for one run."""

    def __init__(
        self,
        options: WorkflowOptions,
        opened: Opened,
        catalogue: FolderCatalogue,
        announce: Callable[[str], None],
    ) -> None:
        engines = KeptEngines(
            device=options.device,
            precision=options.precision,
            preset=options.preset,
            models_folder=options.models,
            loading=interruptible,
        )
        self.models = NodeModels(engines, device=options.device, loading=interruptible)
        self.catalogue = catalogue
        self.prompt: Mapping[str, Any] = opened.prompt
        self.extra_pnginfo: Mapping[str, Any] = {"workflow": opened.workflow} if opened.workflow else {}
        self.written: list[Path] = []
        self._inputs, self._out, self._announce = options.inputs, options.out, announce

    def read_input(self, name: str) -> bytes:
        """Read an image of the input folder; the suffixes `[output]` and `[temp]` mean the output folder."""
        plain, _, place = name.removesuffix("]").rpartition(" [")
        is_output = place in ("output", "temp")
        folder = self._out if is_output else self._inputs
        try:
            path = resolve_inside(folder, plain if plain and place in ("input", "output", "temp") else name)
        except NotFoundError:
            known = () if is_output else self.catalogue.pictures()
            raise NotFoundError(f"no image {name!r} in {folder}; {nearest(name, known)}") from None
        return path.read_bytes()

    def save(self, picture: Image, prefix: str, kind: Kind = "output") -> SavedPicture:
        """Write a PNG atomically under the next free number. Previews are written like other images."""
        stem = Path(filled_prefix(prefix, picture))
        path = _free(self._out / stem)
        encoded = png_with_graph(picture, self.prompt, self.extra_pnginfo)
        with atomic_write(path) as file:
            file.write(encoded)
        self.written.append(path)
        self._announce(f"{path}  ({picture.width}×{picture.height})")
        subfolder = "" if stem.parent == Path() else stem.parent.as_posix()
        return {"filename": path.name, "subfolder": subfolder, "type": kind}


def _free(stem: Path) -> Path:
    """The next path as ComfyUI numbers files: one more than the largest number."""
    form = re.compile(rf"{re.escape(stem.name)}_(\d+)_\.png")
    matches = (form.fullmatch(path.name) for path in stem.parent.glob("*")) if stem.parent.is_dir() else ()
    number = max((int(match[1]) for match in matches if match), default=0) + 1
    return stem.with_name(f"{stem.name}_{number:05}_.png")
