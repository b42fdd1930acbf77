"""Reads the real images: a dataset built by `calotype data emoji`, with the label of each image."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from calotype.core.errors import ModelFileError, NotFoundError, Problem, RequestError
from calotype.core.progress import Progress, Silent
from calotype.datasets.emoji.manifest import FILE_NAME
from calotype.datasets.emoji.render import ENCODING
from calotype.models.json_file import read_json

_DECIDES_ARTWORK = ("format", "packages", "backgrounds")
"""Settings that a classifier depends on, unlike the number of images and their packing."""


@dataclass(frozen=True)
class Shown:
    """The label of one image."""

    base: str
    """The emoji without skin tone and gender."""
    name: str
    style: str
    background: str
    captions: tuple[str, ...]
    fingerprint: bytes
    """Hash of the file; images with equal hashes are identical."""


@dataclass(frozen=True)
class Pictures:
    """Part of a dataset in disk order; images are decoded on demand, because all of them take 3 GB."""

    shown: Sequence[Shown]
    files: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.shown)

    def pixels(
        self, side: int, which: Sequence[int] | None = None, progress: Progress | None = None
    ) -> Tensor:
        """Decode all images, or those at `which`, as (number, 3, side, side) in uint8."""
        chosen = range(len(self)) if which is None else which
        progress = progress or Silent()
        progress.start("decoding", len(chosen))
        pixels = torch.empty(len(chosen), 3, side, side, dtype=torch.uint8)
        for place, number in enumerate(chosen):
            pixels[place] = scaled(Image.open(io.BytesIO(self.files[number])), side)
            progress.advance()
        return pixels


class EmojiSet:
    """Open a built dataset; raise an error if it is invalid or was changed."""

    def __init__(self, folder: Path) -> None:
        try:
            record = read_json(folder / FILE_NAME)
        except ModelFileError:
            rule = f"{folder} has no readable {FILE_NAME}; build a set with `calotype data emoji FOLDER`"
            raise NotFoundError(rule) from None
        missing = [key for key in (*_DECIDES_ARTWORK, "sha256", "files", "picture") if key not in record]
        if missing:
            rule = f"{folder / FILE_NAME} says nothing of {', '.join(missing)}; it is no emoji set's"
            raise RequestError([Problem("data", rule, str(folder))])
        self.folder = folder
        self._record: Mapping[str, Any] = record

    @property
    def sha256(self) -> str:
        """Hash of all shards."""
        return str(self._record["sha256"])

    @property
    def artwork_sha256(self) -> str:
        """Hash of the settings that determine how the emoji look."""
        parts = {key: self._record[key] for key in _DECIDES_ARTWORK}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def side(self) -> int:
        return int(self._record["picture"]["side"])

    def read(self, split: str) -> Pictures:
        """Read the images of `train` or `heldout`."""
        shown, files = [], []
        for about, file in self._samples(split):
            shown.append(_described(about, file))
            files.append(file)
        if not shown:
            raise NotFoundError(f"{self.folder} has no {split} pictures; build it with more --backgrounds")
        return Pictures(shown, files)

    def _samples(self, split: str) -> Iterator[tuple[dict[str, Any], bytes]]:
        for name, recorded in self._record["files"].items():
            if not (name.startswith(f"{split}/") and name.endswith(".tar")):
                continue
            content = self._checked(name, recorded)
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                members = {
                    member.name: slice(member.offset_data, member.offset_data + member.size)
                    for member in archive
                }
            for key, place in members.items():
                stem, _, ending = key.rpartition(".")
                if ending == ENCODING:
                    yield json.loads(content[members[f"{stem}.json"]]), content[place]

    def _checked(self, name: str, recorded: str) -> bytes:
        path = self.folder / name
        content = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(content).hexdigest() != recorded:
            rule = f"{path} is not as it was built; remove {self.folder} and build it again"
            raise RequestError([Problem("data", rule, str(path))])
        return content


def scaled(image: Image.Image, side: int) -> Tensor:
    """Downscale an image to (3, side, side) in uint8 by averaging pixels."""
    small = image.convert("RGB")
    if small.size != (side, side):
        small = small.resize((side, side), Image.Resampling.BOX)
    return torch.from_numpy(np.array(small)).permute(2, 0, 1).contiguous()


def _described(about: Mapping[str, Any], file: bytes) -> Shown:
    return Shown(
        base=about["base"],
        name=about["name"],
        style=about["style"],
        background=about["background"],
        captions=tuple(about["captions"]),
        fingerprint=hashlib.sha256(file).digest()[:16],
    )
