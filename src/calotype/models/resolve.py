"""What a user may write where a model is meant, and the weights it leads to.

In order: `random:NAME` or `random:NAME:SEED`, a catalogue name, a path, a name in the model folder, a hub id.
A catalogue name is looked for in the model folder before the hub. Knows nothing of devices.
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
    """Weights ready to be read, and whose they are."""

    weights: AbstractContextManager[Weights]
    identity: ModelIdentity


class _Place(NamedTuple):
    """A file or folder, and the folder that links may not lead out of."""

    path: Path
    inside: Path | None = None


def resolve_model(
    reference: str,
    *,
    models: Path | None = None,
    config: Path | None = None,
    prediction_type: str | None = None,
) -> ResolvedModel:
    """Open the model that `reference` means.

    `config` describes a single file whose architecture is not a known one; `prediction_type` overrules the
    file.
    """
    check_reference(config, prediction_type)

    def settled(architecture: Architecture) -> Architecture:
        return architecture.predicting(prediction_type)

    if reference.startswith(RANDOM) or reference == EMBEDDED:
        _refuse_config(reference, config)
        return (_embedded if reference == EMBEDDED else _random)(reference, settled)
    place = _place_of(reference, models or models_dir())
    if place.path.is_dir():
        _refuse_config(reference, config)
        return _folder(reference, place.path, settled(read_architecture(place.path)))
    with ExitStack() as opened:
        file = opened.enter_context(open_tensors(place.path, inside=place.inside))
        given = read_config(config) if config else None
        architecture = settled(architecture_of(file, given, prediction_type))
        weights = SingleFileWeights(file, architecture)
        identity = _identity(reference, architecture, _remembered(place.path, file.sha256))
        opened.pop_all()  # the weights close the file from here on
    return ResolvedModel(weights, identity)


def check_reference(config: Path | None, prediction_type: str | None) -> None:
    """What a user says of a file is looked at before the file is, which would be blamed for it."""
    if prediction_type is not None and prediction_type not in PREDICTION_TYPES:
        rule = f"{prediction_type!r} is not one of {', '.join(PREDICTION_TYPES)}"
        raise RequestError([Problem("prediction", rule, prediction_type)])
    if config is not None and not config.exists():
        raise NotFoundError(f"no configuration {config}; name a diffusers folder or a JSON file")


def _refuse_config(reference: str, config: Path | None) -> None:
    if config is not None:
        rule = f"{config} would describe a single file, and {reference} says itself how it is built"
        raise RequestError([Problem("config", f"{rule}; leave it out", str(config))])


def _folder(reference: str, folder: Path, architecture: Architecture) -> ResolvedModel:
    with ExitStack() as opened:
        weights = opened.enter_context(FolderWeights(folder, architecture))
        identity = _identity(reference, architecture, folder_sha256(folder))
        opened.pop_all()
    return ResolvedModel(weights, identity)


def _random(reference: str, settled: Callable[[Architecture], Architecture]) -> ResolvedModel:
    name, colon, text = reference.removeprefix(RANDOM).partition(":")
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SEED))
    if colon and not (plain and int(text) <= MAX_SEED):
        rule = f"{text[:80]!r} is no seed: a whole number from 0 to {MAX_SEED} follows the second colon"
        raise RequestError([Problem("model", rule, reference)])
    return random_model(reference, settled(catalogue.architecture(name)), int(text) if text else 0)


def random_model(reference: str, architecture: Architecture, seed: int) -> ResolvedModel:
    """Seeded random numbers for an architecture, under the name of `reference`."""
    weights = RandomWeights(architecture, seed)
    return ResolvedModel(nullcontext(weights), random_identity(reference, architecture, seed))


def random_identity(reference: str, architecture: Architecture, seed: int) -> ModelIdentity:
    """Whose random weights are: they follow from seed and architecture, so those are what is hashed."""
    text = f"random {seed} {json.dumps(architecture.as_dict(), sort_keys=True)}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ModelIdentity(reference=reference, architecture=architecture.name, sha256=digest, random=True)


def embedded_folder() -> Path:
    """Where the package keeps the embedded model, its card beside the weights."""
    return Path(str(package_files("calotype.resources.assets") / EMBEDDED))


def _embedded(reference: str, settled: Callable[[Architecture], Architecture]) -> ResolvedModel:
    folder = embedded_folder()
    if not is_model_folder(folder):
        return _random(f"{RANDOM}{reference}", settled)
    title = catalogue.architecture(reference).title
    architecture = replace(read_architecture(folder), name=reference, title=title)
    return _folder(reference, folder, settled(architecture))


def _place_of(reference: str, models: Path) -> _Place:
    """Where the model is on this machine; the hub is asked when nothing else is meant."""
    checkpoints = models / "checkpoints"
    in_catalogue = reference in catalogue.names()
    if not in_catalogue and _exists(reference):
        return _Place(Path(reference).expanduser())
    try:
        return _Place(resolve_inside(checkpoints, reference, field="model"), checkpoints)
    except NotFoundError:
        if in_catalogue:
            return _Place(snapshot(str(catalogue.architecture(reference).hub_id)))
        if reference.count("/") == 1 and not reference.endswith(FILE_SUFFIXES):
            return _Place(snapshot(reference))
        known = [*catalogue.names(), *list_files(checkpoints)]
        places = f"not a file, not in {checkpoints}, not in the catalogue"
        raise NotFoundError(f"no model {reference!r}: {places}; {did_you_mean(reference, known)}") from None


def _exists(reference: str) -> bool:
    try:
        return reference != "" and Path(reference).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False  # too long, with a NUL, of a user who does not exist: the check of names says which


def read_config(path: Path) -> Architecture:
    """An architecture from a diffusers folder, or from JSON as `calotype models show --json` prints it."""
    if path.is_dir():
        return read_architecture(path)
    values = read_json(path)
    try:
        return Architecture.from_dict(values.get("architecture", values))
    except ValueError as error:
        raise ModelFileError(path, str(error)) from error


def _identity(reference: str, architecture: Architecture, sha256: str) -> ModelIdentity:
    # A record travels inside pictures; where a file lay on somebody's disk is nobody else's business.
    shown = Path(reference).name if Path(reference).is_absolute() else reference
    return ModelIdentity(reference=shown, architecture=architecture.name, sha256=sha256)


def folder_sha256(folder: Path) -> str:
    """One hash over the names and hashes of the folder's weight files."""
    total = hashlib.sha256()
    for name in list_files(folder):
        if name.endswith(WEIGHT_FILES):
            total.update(f"{name} {file_sha256(folder / name)}\n".encode())
    return total.hexdigest()


def configured_sha256(folder: Path, settings: str) -> str:
    """The same, and over the file of settings without which the weights would do something else."""
    both = f"{folder_sha256(folder)} {file_sha256(folder / settings)}"
    return hashlib.sha256(both.encode()).hexdigest()


def file_sha256(file: Path) -> str:
    """A file's hash, remembered so that gigabytes are read once."""

    def read() -> str:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    return _remembered(file, read)


def _remembered(file: Path, read: Callable[[], str]) -> str:
    """What `read` says, or what it said when the file had the same inode, size and times of change."""
    status = file.stat()
    # The second time cannot be set back, as tools that copy files do with the first.
    times = f"{status.st_mtime_ns}-{status.st_ctime_ns}"
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{times}"
    note = cache_dir() / "sha256" / key
    with suppress(OSError):
        return note.read_text("ascii").strip()
    digest = read()
    # A read-only home costs time on the next start, nothing else.
    with suppress(OSError), atomic_write(note, "w") as out:
        out.write(digest)
    return digest
