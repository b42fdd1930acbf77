"""Resolves a model reference to weights and an identity.

A reference is, in this order: `random:NAME` or `random:NAME:SEED`, a catalogue name, a path, a name in the
model folder, a hub id. A catalogue name is looked up in the model folder before the hub.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.resources import files as package_files
from pathlib import Path
from typing import NamedTuple

from calotype.core.errors import ModelFileError, NotFoundError, Problem, RequestError, did_you_mean
from calotype.core.paths import atomic_write, cache_dir, list_files, models_dir, resolve_inside
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.diffusers_layout import is_model_folder, read_architecture
from calotype.models.files.open import open_tensors
from calotype.models.hub import snapshot
from calotype.models.json_file import read_json
from calotype.models.single_file import architecture_of
from calotype.models.weights import FolderWeights, RandomWeights, SingleFileWeights, Weights
from calotype.spec.constants import RANDOM_MODEL
from calotype.spec.records.image import ModelIdentity

EMBEDDED = "emoji"
RANDOM = RANDOM_MODEL
MAX_SEED = 2**64 - 1
FILE_SUFFIXES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")
PREDICTION_TYPES = ("epsilon", "v_prediction", "sample")
WEIGHT_FILES = (".safetensors", ".bin")


@dataclass(frozen=True)
class ResolvedModel:
    """Weights that are ready to be read, and the model's identity."""

    weights: AbstractContextManager[Weights]
    identity: ModelIdentity


class _Location(NamedTuple):
    """A file or folder, and the folder that links may not leave."""

    path: Path
    inside: Path | None = None


def resolve_model(
    reference: str,
    *,
    models: Path | None = None,
    config: Path | None = None,
    prediction_type: str | None = None,
) -> ResolvedModel:
    """Open the model that `reference` names.

    `config` describes a single file whose architecture is not a known one; `prediction_type` overrides the
    file's.
    """
    check_reference(config, prediction_type)

    def with_prediction(architecture: Architecture) -> Architecture:
        return architecture.predicting(prediction_type)

    if reference.startswith(RANDOM) or reference == EMBEDDED:
        _refuse_config(reference, config)
        return (_embedded if reference == EMBEDDED else _random)(reference, with_prediction)
    location = _locate(reference, models or models_dir())
    if location.path.is_dir():
        _refuse_config(reference, config)
        return _folder(reference, location.path, with_prediction(read_architecture(location.path)))
    with ExitStack() as opened:
        file = opened.enter_context(open_tensors(location.path, inside=location.inside))
        given = read_config(config) if config else None
        architecture = with_prediction(architecture_of(file, given, prediction_type))
        weights = SingleFileWeights(file, architecture)
        identity = _identity(reference, architecture, _cached_digest(location.path, file.sha256))
        opened.pop_all()  # the weights now own the file and close it
    return ResolvedModel(weights, identity)


def check_reference(config: Path | None, prediction_type: str | None) -> None:
    """Validate the user's settings before opening the file, so that errors do not blame the file."""
    if prediction_type is not None and prediction_type not in PREDICTION_TYPES:
        rule = f"{prediction_type!r} is not one of {', '.join(PREDICTION_TYPES)}"
        raise RequestError([Problem("prediction", rule, prediction_type)])
    if config is not None and not config.exists():
        raise NotFoundError(f"no configuration {config}; name a diffusers folder or a JSON file")


def _refuse_config(reference: str, config: Path | None) -> None:
    if config is not None:
        rule = f"{config} describes a single file, but {reference} has its own configuration"
        raise RequestError([Problem("config", f"{rule}; omit it", str(config))])


def _folder(reference: str, folder: Path, architecture: Architecture) -> ResolvedModel:
    with ExitStack() as opened:
        weights = opened.enter_context(FolderWeights(folder, architecture))
        identity = _identity(reference, architecture, folder_sha256(folder))
        opened.pop_all()
    return ResolvedModel(weights, identity)


def _random(reference: str, with_prediction: Callable[[Architecture], Architecture]) -> ResolvedModel:
    name, colon, text = reference.removeprefix(RANDOM).partition(":")
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SEED))
    if colon and not (is_number and int(text) <= MAX_SEED):
        rule = f"{text[:80]!r} is no seed: a whole number from 0 to {MAX_SEED} follows the second colon"
        raise RequestError([Problem("model", rule, reference)])
    return random_model(reference, with_prediction(catalogue.architecture(name)), int(text) if text else 0)


def random_model(reference: str, architecture: Architecture, seed: int) -> ResolvedModel:
    """Seeded random weights for an architecture, with the identity of `reference`."""
    weights = RandomWeights(architecture, seed)
    return ResolvedModel(nullcontext(weights), random_identity(reference, architecture, seed))


def random_identity(reference: str, architecture: Architecture, seed: int) -> ModelIdentity:
    """The identity of random weights: a hash of seed and architecture, which determine them."""
    text = f"random {seed} {json.dumps(architecture.as_dict(), sort_keys=True)}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ModelIdentity(reference=reference, architecture=architecture.name, sha256=digest, random=True)


def embedded_folder() -> Path:
    """The package folder of the embedded model, with its weights and model card."""
    return Path(str(package_files("calotype.resources.assets") / EMBEDDED))


def _embedded(reference: str, with_prediction: Callable[[Architecture], Architecture]) -> ResolvedModel:
    folder = embedded_folder()
    if not is_model_folder(folder):
        return _random(f"{RANDOM}{reference}", with_prediction)
    title = catalogue.architecture(reference).title
    architecture = replace(read_architecture(folder), name=reference, title=title)
    return _folder(reference, folder, with_prediction(architecture))


def _locate(reference: str, models: Path) -> _Location:
    """Find the model on this machine, or download it from the hub if the reference matches nothing else."""
    checkpoints = models / "checkpoints"
    in_catalogue = reference in catalogue.names()
    if not in_catalogue and _exists(reference):
        return _Location(Path(reference).expanduser())
    try:
        return _Location(resolve_inside(checkpoints, reference, field="model"), checkpoints)
    except NotFoundError:
        if in_catalogue:
            return _Location(snapshot(str(catalogue.architecture(reference).hub_id)))
        if reference.count("/") == 1 and not reference.endswith(FILE_SUFFIXES):
            return _Location(snapshot(reference))
        known = [*catalogue.names(), *list_files(checkpoints)]
        places = f"not a file, not in {checkpoints}, not in the catalogue"
        raise NotFoundError(f"no model {reference!r}: {places}; {did_you_mean(reference, known)}") from None


def _exists(reference: str) -> bool:
    try:
        return reference != "" and Path(reference).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False  # too long, with a NUL, or of an unknown user: the name check reports which


def read_config(path: Path) -> Architecture:
    """Read an architecture from a diffusers folder, or from the JSON of `calotype models show --json`."""
    if path.is_dir():
        return read_architecture(path)
    values = read_json(path)
    try:
        return Architecture.from_dict(values.get("architecture", values))
    except ValueError as error:
        raise ModelFileError(path, str(error)) from error


def _identity(reference: str, architecture: Architecture, sha256: str) -> ModelIdentity:
    # The record is embedded in images that users share; absolute paths would disclose private folders.
    shown = Path(reference).name if Path(reference).is_absolute() else reference
    return ModelIdentity(reference=shown, architecture=architecture.name, sha256=sha256)


def folder_sha256(folder: Path) -> str:
    """Hash the names and hashes of the folder's weight files."""
    total = hashlib.sha256()
    for name in list_files(folder):
        if name.endswith(WEIGHT_FILES):
            total.update(f"{name} {file_sha256(folder / name)}\n".encode())
    return total.hexdigest()


def configured_sha256(folder: Path, settings: str) -> str:
    """Hash the folder's weights and the settings file that changes their effect."""
    both = f"{folder_sha256(folder)} {file_sha256(folder / settings)}"
    return hashlib.sha256(both.encode()).hexdigest()


def file_sha256(file: Path) -> str:
    """A file's hash, cached on disk so that gigabytes are read only once."""

    def read() -> str:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    return _cached_digest(file, read)


def _cached_digest(file: Path, read: Callable[[], str]) -> str:
    """The cached result of `read` for a file of the same inode, size and modification times."""
    status = file.stat()
    # Tools that copy files set mtime back; ctime cannot be set.
    times = f"{status.st_mtime_ns}-{status.st_ctime_ns}"
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{times}"
    entry = cache_dir() / "sha256" / key
    with suppress(OSError):
        return entry.read_text("ascii").strip()
    digest = read()
    # A read-only home directory only costs time on the next start.
    with suppress(OSError), atomic_write(entry, "w") as out:
        out.write(digest)
    return digest
