"""Reads and writes JSON configuration files, with limits that protect against untrusted files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.models.files.safe_open import open_regular
from calotype.models.files.safetensors_header import strict_json

MAX_CONFIG_BYTES = 64 * 2**20


def read_json(file: Path, *, inside: Path | None = None) -> dict[str, Any]:
    """Read the JSON object of a configuration file. With `inside`, reject a link that leaves that folder."""
    return strict_json(file, _read_bytes(file, inside), "it")


def read_text_file(file: Path, *, inside: Path | None = None) -> str:
    """Read a small UTF-8 text file of a model folder."""
    try:
        return _read_bytes(file, inside).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(file, f"it is not UTF-8 text (byte {error.start} is wrong)") from None


def _read_bytes(file: Path, inside: Path | None) -> bytes:
    try:
        with open_regular(file, inside=inside) as opened:
            if opened.size_bytes > MAX_CONFIG_BYTES:
                rule = f"has {opened.size_bytes} bytes, the limit for a configuration is {MAX_CONFIG_BYTES}"
                raise ModelFileError(file, rule)
            return opened.read_at(0, opened.size_bytes)
    except NotFoundError:
        raise ModelFileError(file, "is missing; the model folder is incomplete") from None


def write_json(file: Path, values: Mapping[str, Any]) -> None:
    """Write a configuration; the same values always give the same bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
