"""What a user may write where a model is meant, and the weights it leads to.

In order: `random:NAME`, a catalogue name, a path, a name in the model folder, a hub id. Knows nothing of devices.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.resources import files as package_files
from pathlib import Path

from calotype.core.errors import NotFoundError, near_matches
from calotype.core.paths import cache_dir, list_files, models_dir, resolve_inside, written_whole
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.files.converted import open_tensors
from calotype.models.folder_layout import is_model_folder, read_architecture, read_json
from calotype.models.hub import snapshot
from calotype.models.single_file import architecture_of
from calotype.models.weights import FolderWeights, RandomWeights, SingleFileWeights, Weights
from calotype.spec.record import ModelIdentity

EMBEDDED = "emoji"


@dataclass(frozen=True)
class Found:
    """Weights ready to be read, and whose they are."""

    weights: AbstractContextManager[Weights]
    identity: ModelIdentity


def find_model(
    reference: str,
    *,
    models: Path | None = None,
    config: Path | None = None,
    prediction_type: str | None = None,
) -> Found:
    """Open the model that `reference` means. `config` describes a single file whose architecture is not a known one."""
    if reference.startswith("random:"):
        return _random(reference)
    if reference == EMBEDDED:
        return _embedded()
    path = _path_of(reference, models or models_dir())
    if path is None:
        known = catalogue.architecture(reference).hub_id if reference in catalogue.names() else reference
        path = snapshot(str(known))
    if path.is_dir():
        architecture = _with_prediction(read_architecture(path), prediction_type)
        return Found(FolderWeights(path, architecture), _identity(reference, architecture, folder_sha256(path)))
    file = open_tensors(path)
    architecture = _with_prediction(architecture_of(file, read_config(config) if config else None), prediction_type)
    return Found(SingleFileWeights(file, architecture), _identity(reference, architecture, file.sha256()))


def _random(reference: str) -> Found:
    _, name, *seed = reference.split(":")
    number = int(seed[0]) if seed and seed[0].isdigit() else 0
    architecture = catalogue.architecture(name)
    return Found(nullcontext(RandomWeights(architecture, number)), random_identity(reference, architecture, number))


def random_identity(reference: str, architecture: Architecture, seed: int) -> ModelIdentity:
    digest = hashlib.sha256(f"random {seed} {json.dumps(architecture.as_dict(), sort_keys=True)}".encode()).hexdigest()
    return ModelIdentity(reference=reference, architecture=architecture.name, sha256=digest, random=True)


def _embedded() -> Found:
    folder = Path(str(package_files("calotype.assets") / EMBEDDED))
    if not is_model_folder(folder):
        return _random(f"random:{EMBEDDED}")
    architecture = replace(read_architecture(folder), name=EMBEDDED, title=catalogue.architecture(EMBEDDED).title)
    return Found(FolderWeights(folder, architecture), _identity(EMBEDDED, architecture, folder_sha256(folder)))


def _path_of(reference: str, models: Path) -> Path | None:
    """A path on disk, or a name inside the model folder's checkpoints."""
    path = Path(reference).expanduser()
    if path.exists():
        return path
    checkpoints = models / "checkpoints"
    if reference in catalogue.names():
        return None
    try:
        return resolve_inside(checkpoints, reference, field="model")
    except NotFoundError:
        if reference.count("/") == 1 and not path.suffix:
            return None  # the form of a hub id
        known = [*catalogue.names(), *list_files(checkpoints)]
        raise NotFoundError(
            f"no model {reference!r}: not a file, not in {checkpoints}, not in the catalogue; {near_matches(reference, known)}"
        ) from None


def read_config(path: Path) -> Architecture:
    """An architecture from a JSON file as `calotype models show --json` prints it, or from a diffusers folder."""
    return read_architecture(path) if path.is_dir() else Architecture.from_dict(read_json(path))


def _with_prediction(architecture: Architecture, prediction_type: str | None) -> Architecture:
    if prediction_type is None:
        return architecture
    return replace(architecture, scheduler={**architecture.scheduler, "prediction_type": prediction_type})


def _identity(reference: str, architecture: Architecture, sha256: str) -> ModelIdentity:
    shown = reference if not Path(reference).is_absolute() else Path(reference).name
    return ModelIdentity(reference=shown, architecture=architecture.name, sha256=sha256)


def folder_sha256(folder: Path) -> str:
    """One hash over the names and hashes of the folder's weight files."""
    total = hashlib.sha256()
    for name in list_files(folder):
        if name.endswith((".safetensors", ".bin")):
            total.update(f"{name} {file_sha256(folder / name)}\n".encode())
    return total.hexdigest()


def file_sha256(file: Path) -> str:
    """A file's hash, remembered by inode, size and time so that gigabytes are read once."""
    status = file.stat()
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
    note = cache_dir() / "sha256" / key
    if note.is_file():
        return note.read_text().strip()
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    # A read-only home costs time on the next start, nothing else.
    with suppress(OSError), written_whole(note, "w") as out:
        out.write(digest)
    return digest
