"""Reads a built set with the standard library and Pillow alone, as somebody else's program would."""

import io
import json
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from calotype.datasets.emoji.split import Amounts

ALL_BACKGROUNDS = Amounts(backgrounds=12, toned_backgrounds=12)


@dataclass(frozen=True)
class Read:
    """One sample as it lies in a shard."""

    key: str
    picture: Image.Image
    about: dict[str, Any]

    @property
    def combination(self) -> tuple[str, str, str]:
        return self.about["hexcode"], self.about["style"], self.about["background"]


def samples_in(folder: Path) -> list[Read]:
    found = []
    for shard in sorted(folder.glob("*.tar")):
        members: dict[str, dict[str, bytes]] = defaultdict(dict)
        with tarfile.open(shard) as archive:
            for member in archive:
                file = archive.extractfile(member)
                assert file is not None
                key, _, extension = member.name.partition(".")
                members[key][extension] = file.read()
        found += [
            Read(key, Image.open(io.BytesIO(files["webp"])).convert("RGB"), json.loads(files["json"]))
            for key, files in members.items()
        ]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
