"""Find the checkpoints in a folder; reads manifests but no tensors, and changes nothing.

`step-00000100` is a checkpoint if its `complete.json` says so. Names with a leading dot are temporary:
`.partial` is being written, `.removed` is being deleted, `.replaced` is an older checkpoint of the same step,
which counts until the new one has its name. A killed run may leave any of them behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calotype.core.errors import CalotypeError
from calotype.train.checkpoint.fs import REMOVED_SUFFIX
from calotype.train.checkpoint.manifest import Manifest, broken_rule, read_manifest

_PARTIAL_SUFFIX, _REPLACED_SUFFIX = ".partial", ".replaced"
_CHECKPOINT = re.compile(r"step-(\d{8,})")
_REPLACED = re.compile(r"\.step-(\d{8,})\.replaced")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: all its files exist with the size they were written with."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def metric(self) -> float | None:
        return self.manifest.metric

    @property
    def metric_name(self) -> str | None:
        return self.manifest.metric_name


@dataclass(frozen=True)
class Broken:
    """A folder with a checkpoint's name that is not a valid checkpoint."""

    path: Path
    reason: str
    manifest: Manifest | None
    """Set if it can still be read: Calotype certainly wrote the folder then."""


@dataclass(frozen=True)
class CheckpointListing:
    complete: tuple[Checkpoint, ...]
    """In the order they were saved."""
    broken: tuple[Broken, ...]

    @property
    def last_sequence(self) -> int:
        """The highest sequence number of all saves that can still be read; 0 if there is none."""
        manifests: list[Manifest | None] = [found.manifest for found in self.complete]
        manifests += [found.manifest for found in self.broken]
        return max((manifest.sequence for manifest in manifests if manifest is not None), default=0)


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def partial_path(folder: Path, step: int) -> Path:
    return folder / f".step-{step:08d}{_PARTIAL_SUFFIX}"


def replaced_path(folder: Path, step: int) -> Path:
    return folder / f".step-{step:08d}{_REPLACED_SUFFIX}"


def list_checkpoints(folder: Path) -> CheckpointListing:
    """Check every folder that has a checkpoint's name. A missing folder counts as empty."""
    complete, broken = [], []
    for path, step in _candidates(folder):
        found = check_checkpoint(path, step)
        if isinstance(found, Checkpoint):
            complete.append(found)
        else:
            broken.append(found)
    complete.sort(key=lambda checkpoint: (checkpoint.manifest.sequence, checkpoint.step))
    return CheckpointListing(tuple(complete), tuple(broken))


def check_checkpoint(path: Path, step: int | None = None) -> Checkpoint | Broken:
    """Check whether a folder is a complete checkpoint, of `step` if that is given."""
    try:
        manifest = read_manifest(path)
    except CalotypeError as error:
        return Broken(path, str(error), None)
    if step is not None and manifest.step != step:
        return Broken(path, f"its name says step {step}, its manifest {manifest.step}", manifest)
    rule = broken_rule(path, manifest)
    return Checkpoint(path, manifest) if rule is None else Broken(path, rule, manifest)


def leftovers(folder: Path) -> Iterator[Path]:
    """Leftovers of killed runs that can be deleted. Only valid while this process holds the folder lock."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".step-") and path.name.endswith((_PARTIAL_SUFFIX, REMOVED_SUFFIX)):
            yield path


def quarantine(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Checkpoints that were about to be replaced, each with its original path."""
    for path in sorted(folder.iterdir()):
        named = _REPLACED.fullmatch(path.name)
        if named:
            yield path, folder / f"step-{named[1]}"


def _candidates(folder: Path) -> Iterator[tuple[Path, int]]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        named = _CHECKPOINT.fullmatch(path.name)
        if named:
            yield path, int(named[1])
    for path, place in quarantine(folder):
        if not place.exists():
            yield path, int(place.name.removeprefix("step-"))
