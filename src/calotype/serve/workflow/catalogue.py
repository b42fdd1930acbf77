"""The names that a deployment's workflows may use; opens no files and needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from calotype.spec.constants import PRESETS
from calotype.workflow.file_catalogue import FolderCatalogue

EMBEDDED = "emoji"


class WorkflowCatalogue(FolderCatalogue):
    """Model files, deployed models and uploaded images; lists each folder once."""

    def __init__(self, models: Path | None, deployed: Sequence[str], pictures: Sequence[str]) -> None:
        super().__init__(models, known=tuple(dict.fromkeys([*deployed, EMBEDDED])), presets=PRESETS)
        self._pictures = tuple(pictures)
        self._listed = cache(super().files)

    def files(self, folder: str) -> list[str]:
        return self._listed(folder)

    def pictures(self) -> list[str]:
        return list(self._pictures)
