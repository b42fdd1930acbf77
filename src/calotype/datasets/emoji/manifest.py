"""Writes the manifest of a built dataset: sources, versions, counts and checksums.

Also checks whether a folder contains a dataset that was built the same way.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from calotype.core.errors import ModelFileError, Problem, RequestError
from calotype.datasets.emoji.backgrounds import BACKGROUNDS
from calotype.datasets.emoji.npm import Package
from calotype.datasets.emoji.render import ENCODING, SIDE
from calotype.datasets.emoji.split import Amounts, Picture
from calotype.models.json_file import read_json, write_json

FILE_NAME = "dataset.json"
_FORMAT = 1
"""Increment when the same packages give different images or captions."""


@dataclass(frozen=True)
class Built:
    """A complete dataset."""

    folder: Path
    record: Mapping[str, Any]
    """The content of dataset.json."""
    is_new: bool = True
    """False if it existed before."""

    @property
    def sha256(self) -> str:
        """Hash over all shards in order."""
        return str(self.record["sha256"])

    def at(self, folder: Path) -> Self:
        return replace(self, folder=folder)


@dataclass(frozen=True)
class Manifest:
    """Return everything that determines the content of a dataset."""

    packages: Sequence[Package]
    amounts: Amounts
    made_with: Mapping[str, str]

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "packages": [asdict(package) for package in self.packages],
            "amounts": asdict(self.amounts),
            "backgrounds": {name: list(colour) for name, colour in BACKGROUNDS.items()},
            "picture": {"side": SIDE, "encoding": f"{ENCODING}, lossless"},
            "made_with": dict(self.made_with),
        }

    def write(
        self,
        folder: Path,
        pictures: Sequence[Picture],
        num_tokens: int,
        longest_caption: int,
        sums: Mapping[str, str],
    ) -> Built:
        record = {
            **self.identity,
            "counts": _counts(pictures),
            "vocabulary": {"num_tokens": num_tokens, "longest_caption_tokens": longest_caption},
            "files": dict(sums),
            "sha256": _sum_of([folder / name for name in sums if name.endswith(".tar")]),
        }
        write_json(folder / FILE_NAME, record)
        return Built(folder, record)


def file_sums(folder: Path) -> dict[str, str]:
    """Return the checksum of every file by its name in the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != FILE_NAME)
    return {str(file.relative_to(folder)): _sum_of([file]) for file in files}


def already_built(folder: Path, account: Manifest) -> Built:
    """Return the dataset in `folder` if it matches `account` and is unchanged; otherwise raise an error."""

    def refuse(rule: str) -> RequestError:
        return RequestError(
            [Problem("destination", f"{folder} {rule}; remove it or choose another folder", folder)]
        )

    try:
        record = read_json(folder / FILE_NAME)
    except ModelFileError:
        raise refuse("exists and is not an emoji dataset") from None
    wanted = account.identity
    differing = [key for key in wanted if record.get(key) != wanted[key]]
    if differing:
        raise refuse(f"contains a dataset built with other {', '.join(differing)}")
    sums, recorded = file_sums(folder), record.get("files", {})
    changed = sorted(name for name in sums.keys() | recorded.keys() if sums.get(name) != recorded.get(name))
    if changed:
        raise refuse(f"contains a dataset that was changed after it was built ({', '.join(changed[:3])})")
    return Built(folder, record, is_new=False)


def _counts(pictures: Sequence[Picture]) -> dict[str, Any]:
    styles = {picture.style.name for picture in pictures}
    return {
        "pictures": len(pictures),
        "train": sum(not picture.held_out for picture in pictures),
        "heldout": sum(picture.held_out for picture in pictures),
        "emoji": len({picture.emoji.hexcode for picture in pictures}),
        "emoji_without_variants": len({picture.emoji.base for picture in pictures}),
        "emoji_of_style": {
            style: len({picture.emoji.hexcode for picture in pictures if picture.style.name == style})
            for style in styles
        },
        "pictures_of_style": Counter(picture.style.name for picture in pictures),
        "pictures_on_background": Counter(picture.background for picture in pictures),
    }


def _sum_of(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
