"""The manifest `complete.json`, written last: it lists the size and digest of every file of a checkpoint."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calotype.core.errors import CalotypeError, ModelFileError
from calotype.core.fingerprint import package_versions
from calotype.models.files.safe_open import open_regular
from calotype.models.files.safetensors_header import strict_json
from calotype.train.checkpoint.fs import FileMark, new_file
from calotype.version import VERSION

FILE_NAME = "complete.json"
FORMAT = 1
_RECORDED_PACKAGES = ("safetensors", "torch", "torchao")


def _versions() -> dict[str, str | None]:
    installed = package_versions()
    own_versions: dict[str, str | None] = {"calotype": VERSION, "python": platform.python_version()}
    return own_versions | {name: installed[name] for name in _RECORDED_PACKAGES}


@dataclass(frozen=True)
class Manifest:
    """The content of `complete.json`."""

    step: int
    sequence: int
    """Orders the saves into a folder, so that the newest is the one saved last, whatever its step.

    It is the time in nanoseconds, or one more than the highest existing one if the clock went back.
    """
    world_size: int
    metric: float | None
    """Lower is better. None if there is no metric or it is not finite."""
    files: Mapping[str, FileMark]
    saved_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str | None] = field(default_factory=_versions)
    metric_name: str | None = None
    """The kind of metric: only values of the same kind are compared. None if it was not recorded."""

    @property
    def num_bytes(self) -> int:
        return sum(mark.num_bytes for mark in self.files.values())


def finite_or_none(metric: float | None) -> float | None:
    """A metric as a manifest stores it: one that is not finite is never the best."""
    return float(metric) if metric is not None and math.isfinite(metric) else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `complete.json`; everything it lists must be on the disk already."""
    with new_file(folder / FILE_NAME) as file:
        file.write(_encode(manifest))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, itself verified to the last byte."""
    path = folder / FILE_NAME
    try:
        with open_regular(path) as opened:
            text = opened.read_at(0, opened.size_bytes)
    except (CalotypeError, OSError) as error:
        raise ModelFileError(folder, f"is not complete: {error}") from None
    fields: dict[str, Any] = strict_json(path, text, "it")
    if fields.get("format") != FORMAT:
        found = f"has format {fields.get('format')!r}, this version of Calotype reads {FORMAT}"
        raise ModelFileError(path, f"{found}; use the version that wrote it")
    try:
        files = {
            name: FileMark(mark["num_bytes"], mark["sha256"]) for name, mark in fields.pop("files").items()
        }
        del fields["format"], fields["sha256"]
        manifest = Manifest(files=files, **fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(path, f"does not have the fields of a manifest: {error}") from None
    if _encode(manifest) != text:
        raise ModelFileError(path, "holds other bytes than were written")
    return manifest


def broken_rule(folder: Path, manifest: Manifest) -> str | None:
    """Why a folder differs from its manifest, by names and sizes alone; None if it does not."""
    for name, mark in manifest.files.items():
        try:
            found = (folder / name).stat().st_size
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if found != mark.num_bytes:
            return f"{name} has {found} bytes, {mark.num_bytes} were written"
    return None


def _encode(manifest: Manifest) -> bytes:
    """A deterministic encoding of the manifest, with its own digest at the end."""
    fields = {"format": FORMAT, **asdict(manifest)}
    if manifest.metric_name is None:
        # Earlier versions did not write this field, and their files are compared byte by byte.
        del fields["metric_name"]
    plain = json.dumps(fields, sort_keys=True).encode("ascii")
    fields["sha256"] = hashlib.sha256(plain).hexdigest()
    return json.dumps(fields, indent=1, sort_keys=True).encode("ascii") + b"\n"
