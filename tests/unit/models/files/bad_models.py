"""A model folder full of files that must not be loaded."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from tests.unit.models.files.specimens import flip_byte, pickled, torch_zip
from tests.unit.models.files.test_safetensors_header import BROKEN


class Command:
    """Runs one where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self._marker}",)


def write_bad_models(checkpoints: Path, marker: Path) -> list[str]:
    """Their names. Pickles that are run make the `marker`."""
    checkpoints.mkdir(parents=True)
    for number, (content, _) in enumerate(BROKEN.values()):
        (checkpoints / f"header-{number}.safetensors").write_bytes(content)
    (checkpoints / "command.safetensors").write_bytes(pickle.dumps(Command(marker)))
    torch_zip(checkpoints / "command.ckpt", pickled({"a": Command(marker)}))
    flip_byte(torch_zip(checkpoints / "damaged.ckpt", pickled({"a": 1})), 80)
    (checkpoints / "text.ckpt").write_text("no weights at all")
    (checkpoints / "link.safetensors").symlink_to("/etc/hostname")
    return sorted(path.name for path in checkpoints.iterdir())
