"""Find the captions of a folder of images in the common layouts.

A text file beside an image takes precedence (`cat.txt` for `cat.png`), then a `metadata.jsonl` in any folder,
as in Hugging Face image folders, then a `captions.json` at the top.
"""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from calotype.train.data.bad_samples import CorruptSampleError, DataError
from calotype.train.data.sources.folder_tree import folders_in

METADATA = "metadata.jsonl"
CAPTIONS = "captions.json"
UTF8 = "utf-8-sig"
"""Some editors write a byte order mark, which would otherwise become part of the caption."""
_CAPTION_FIELDS = ("text", "caption")


class Captions:
    """Captions by the image's name relative to the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listed: dict[str, str] = {}
        if (folder / CAPTIONS).is_file():
            self._listed |= _from_captions_json(folder / CAPTIONS)
        for file in sorted(place / METADATA for place, files in folders_in(folder) if METADATA in files):
            inside = file.parent.relative_to(folder)
            self._listed |= {str(PurePosixPath(inside, name)): text for name, text in _from_metadata(file)}

    @property
    def names(self) -> list[str]:
        """Images that a list has a caption for, whether or not they exist."""
        return list(self._listed)

    def of(self, name: str) -> str | None:
        """The caption of an image; None if there is none."""
        beside = (self._folder / name).with_suffix(".txt")
        try:
            return beside.read_text(encoding=UTF8).strip()
        except FileNotFoundError:
            return self._listed.get(name)
        except UnicodeDecodeError as error:
            raise CorruptSampleError(
                name, f"{beside.name} is not UTF-8 text (byte {error.start} is wrong)"
            ) from None
        except OSError as error:
            raise CorruptSampleError(name, f"{beside.name} cannot be read: {error.strerror}") from error

    def has(self, name: str) -> bool:
        return name in self._listed or (self._folder / name).with_suffix(".txt").is_file()


def _from_metadata(file: Path) -> list[tuple[str, str]]:
    """One JSON object per line, with file_name and text."""
    found = []
    for number, line in enumerate(_text(file).split("\n"), start=1):
        if line.strip():
            found.append(_entry(f"{file}, line {number}", _parsed(f"{file}, line {number}", line)))
    return found


def _from_captions_json(file: Path) -> dict[str, str]:
    """Either one object from names to captions, or a list of objects as in metadata.jsonl."""
    values = _parsed(file, _text(file))
    if isinstance(values, list):
        return dict(_entry(f"{file}, entry {number}", value) for number, value in enumerate(values))
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise DataError(file, 'should map names to captions, for instance {"cat.png": "a cat"}')
    return {str(PurePosixPath(name)): text.strip() for name, text in values.items()}


def _entry(place: object, value: object) -> tuple[str, str]:
    if isinstance(value, Mapping):
        name = value.get("file_name")
        text = next((value[field] for field in _CAPTION_FIELDS if field in value), None)
        if isinstance(name, str) and isinstance(text, str):
            return str(PurePosixPath(name)), text.strip()
    raise DataError(place, 'should be an object like {"file_name": "cat.png", "text": "a cat"}')


def _parsed(place: object, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(place, f"is not JSON: {error}") from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding=UTF8)
    except UnicodeDecodeError as error:
        raise DataError(file, f"is not UTF-8 text (byte {error.start} is wrong)") from None
