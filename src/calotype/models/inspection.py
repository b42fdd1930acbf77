"""What can be said about a model file or folder without running it. Knows nothing of how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.models.files.converted import open_tensors
from calotype.models.files.kinds import FileKind as Format
from calotype.models.files.tensor_file import TensorFile
from calotype.models.files.values import non_finite_tensors
from calotype.models.folder_layout import is_model_folder, read_architecture
from calotype.models.identify import FileKind, identify
from calotype.models.reference import folder_sha256
from calotype.models.single_file import architecture_of
from calotype.models.weights import FileTensors, FolderWeights

SAFE_FORMAT = "safetensors holds no code, and this header was checked"
SAFE_PICKLE = "a pickle, read in a sealed process: it asks for nothing but tensors; convert it to safetensors"


@dataclass(frozen=True)
class Inspection:
    """The answer to 'what is this file?'"""

    path: str
    safe: bool
    why: str
    """Why it is safe, or the rule it breaks."""
    kind: str = "unknown"
    base: str = "unknown"
    dialect: str = "unknown"
    format: str = "unknown"
    prediction_type: str | None = None
    num_tensors: int = 0
    num_parameters: int = 0
    size_bytes: int = 0
    sha256: str | None = None
    dtypes: Mapping[str, int] = field(default_factory=dict)
    """How many tensors have each dtype."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    non_finite: tuple[str, ...] | None = None
    """Tensors that hold NaN or infinity; None when values were not looked at."""


def inspect(path: Path, *, values: bool = False) -> Inspection:
    """Say what a file or folder is. A file that breaks a rule is an answer too, not an exception."""
    if path.is_dir():
        return _inspect_folder(path)
    if not path.exists():
        raise NotFoundError(f"no file {path}")
    try:
        with open_tensors(path) as file:
            return _inspect_file(path, file, values)
    except ModelFileError as error:
        return Inspection(str(path), safe=False, why=error.rule, size_bytes=path.stat().st_size)


def _inspect_file(path: Path, file: TensorFile, values: bool) -> Inspection:
    tensors = FileTensors(file)
    specs = {name: tensors.spec(name) for name in tensors.names()}
    identity = identify({name: spec.shape for name, spec in specs.items()})
    return Inspection(
        path=str(path),
        safe=True,
        why=SAFE_FORMAT if file.kind is Format.SAFETENSORS else SAFE_PICKLE,
        kind=identity.kind.value,
        base=identity.base,
        dialect=identity.dialect,
        format=str(file.kind),
        prediction_type=_prediction_type(file) if identity.kind is FileKind.CHECKPOINT else None,
        num_tensors=len(specs),
        num_parameters=sum(_count(spec.shape) for spec in specs.values()),
        size_bytes=path.stat().st_size,
        sha256=file.sha256(),
        dtypes=dict(Counter(str(spec.dtype).removeprefix("torch.") for spec in specs.values())),
        metadata=dict(file.metadata),
        non_finite=tuple(non_finite_tensors(file)) if values else None,
    )


def _prediction_type(file: TensorFile) -> str | None:
    try:
        return architecture_of(file).prediction_type
    except ModelFileError:
        return None  # a checkpoint of a lineage we cannot run is still worth describing


def _inspect_folder(folder: Path) -> Inspection:
    if not is_model_folder(folder):
        raise NotFoundError(f"{folder} is not a diffusers model folder: it has no model_index.json")
    try:
        architecture = read_architecture(folder)
        with FolderWeights(folder, architecture) as weights:
            specs = [spec for part in architecture.parts() for spec in weights.specs(part).values()]
    except ModelFileError as error:
        return Inspection(str(folder), safe=False, why=str(error))
    return Inspection(
        path=str(folder),
        safe=True,
        why="every weight file in it was checked",
        kind=FileKind.CHECKPOINT.value,
        base=architecture.family,
        dialect="diffusers folder",
        format="folder",
        prediction_type=architecture.prediction_type,
        num_tensors=len(specs),
        num_parameters=sum(_count(spec.shape) for spec in specs),
        size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        sha256=folder_sha256(folder),
        dtypes=dict(Counter(str(spec.dtype).removeprefix("torch.") for spec in specs)),
    )


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
