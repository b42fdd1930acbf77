"""What lies in a folder of checkpoints, and what the names in it mean. Changes nothing and reads no tensors.

`step-00000100` is a checkpoint if its `complete.json` says so. Names with a dot in front are work of somebody
who is at it or died at it: `.partial` is being made, `.removed` taken away, `.replaced` is an older one of
the same step, which counts until the new one has its place.
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
    """A complete checkpoint: all its files are there in the size they were written."""

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
    """A folder that has a checkpoint's name and is none."""

    path: Path
    reason: str
    manifest: Manifest | None
    """When it can still be read: the folder is then known to be one of ours."""


@dataclass(frozen=True)
class CheckpointListing:
    complete: tuple[Checkpoint, ...]
    """In the order they were saved."""
    broken: tuple[Broken, ...]

    @property
    def last_sequence(self) -> int:
        """The highest of any save that can still be seen; 0 when there is none."""
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
    """Look at every folder that has a checkpoint's name. A missing folder is an empty one."""
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
    """Whether a folder is a complete checkpoint, of `step` if that is known."""
    try:
        manifest = read_manifest(path)
    except CalotypeError as error:
        return Broken(path, str(error), None)
    if step is not None and manifest.step != step:
        return Broken(path, f"its name says step {step}, its manifest {manifest.step}", manifest)
    rule = broken_rule(path, manifest)
    return Checkpoint(path, manifest) if rule is None else Broken(path, rule, manifest)


def leftovers(folder: Path) -> Iterator[Path]:
    """What dead runs left and nobody needs. Only for whoever is sure to be the only one here."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".step-") and path.name.endswith((_PARTIAL_SUFFIX, REMOVED_SUFFIX)):
            yield path


def quarantine(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Checkpoints that were about to be replaced, each with the place it had."""
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
