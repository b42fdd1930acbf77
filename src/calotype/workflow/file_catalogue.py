"""Lists the models of a model folder and the images of an input folder, without opening files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calotype.core.errors import NotFoundError
from calotype.core.paths import list_files, models_dir, resolve_inside
from calotype.spec.constants import SAMPLERS, SCHEDULES
from calotype.workflow.input_coercion import nearest

WEIGHTS = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")
IMAGES = (".png", ".jpg", ".jpeg", ".webp")
_FOLDER_MARK = "model_index.json"


class FolderCatalogue:
    """A `Catalogue` of files in folders and of the host's known models and presets."""

    def __init__(
        self,
        models: Path | None = None,
        inputs: Path | None = None,
        *,
        known: Sequence[str] = (),
        presets: Sequence[str] = (),
    ) -> None:
        """`known` are models with names, such as the embedded one and deployed ones."""
        self._models = models or models_dir()
        self._inputs = inputs
        self._known, self._presets = tuple(known), tuple(presets)

    def files(self, folder: str) -> list[str]:
        """Weight files, and for checkpoints also model folders and known names."""
        found = list_files(self._models / folder)
        if folder != "checkpoints":
            return [name for name in found if name.endswith(WEIGHTS)]
        folders = [str(Path(name).parent) for name in found if Path(name).name == _FOLDER_MARK]
        inside = tuple(f"{name}/" for name in folders)
        single = [name for name in found if name.endswith(WEIGHTS) and not name.startswith(inside)]
        return [*self._known, *sorted(folders + single)]

    def find(self, folder: str, name: str) -> str | Path:
        """A path in the folder, or the name itself if it is a known model's."""
        if folder == "checkpoints" and name in self._known:
            return name
        known = self.files(folder)
        if name not in known:
            raise NotFoundError(f"no {name!r} in {self._models / folder}; {nearest(name, known)}")
        return resolve_inside(self._models / folder, name, field=folder)

    def pictures(self) -> list[str]:
        """Images in the input folder and its direct subfolders; not deeper, as it may be a home folder."""
        if self._inputs is None or not self._inputs.is_dir():
            return []
        found = [*self._inputs.glob("*"), *self._inputs.glob("*/*")]
        return sorted(
            path.relative_to(self._inputs).as_posix()
            for path in found
            if path.suffix.lower() in IMAGES and not path.name.startswith(".") and path.is_file()
        )

    def samplers(self) -> Sequence[str]:
        return SAMPLERS

    def schedulers(self) -> Sequence[str]:
        return SCHEDULES

    def presets(self) -> Sequence[str]:
        return self._presets
