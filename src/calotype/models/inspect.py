"""Describes a model file or folder without running it: kind, base model, format, safety, tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.core.paths import list_files
from calotype.models.architecture import Architecture
from calotype.models.diffusers_layout import is_model_folder, read_architecture
from calotype.models.file_detection import BASE_TITLES, FileKind, identify
from calotype.models.files.finite_check import find_non_finite
from calotype.models.files.open import open_tensors
from calotype.models.files.safetensors_reader import TensorFile
from calotype.models.files.sniff import FileKind as Format
from calotype.models.hub import link_boundary
from calotype.models.json_file import read_json
from calotype.models.known_classes import PARTS, PIPELINES, SCALES, named_by_class
from calotype.models.known_files import SD_VAE
from calotype.models.resolve import WEIGHT_FILES, folder_sha256
from calotype.models.sampling_defaults import SamplingDefaults, sampling_defaults
from calotype.models.single_file import architecture_of
from calotype.models.weights import FileTensors, FolderWeights, TensorSpec

INDEX, CONFIG = "model_index.json", "config.json"
RUNNABLE = ("sd", "sd1", "sdxl")
"""Bases of supported pipelines: if one cannot be read, its folder is at fault."""
EVERY_FILE_CHECKED = "every weight file in it was checked"

SAFE_FORMAT = "safetensors holds no code, and this header was checked"
SAFE_PICKLE = "a pickle, read in a sandboxed process: it requests only tensors; convert it to safetensors"


@dataclass(frozen=True)
class Inspection:
    """The description of a model file or folder."""

    path: str
    safe: bool
    why: str
    """Why it is safe, or the rule it breaks."""
    kind: str = "unknown"
    base: str = "unknown"
    title: str = ""
    """The family's name for people."""
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
    """Tensors that hold NaN or infinity; None if values were not checked."""
    sampling: SamplingDefaults | None = None
    """What a checkpoint runs with where a request does not give these values; None if it cannot be run."""


def inspect(path: Path, *, values: bool = False) -> Inspection:
    """Describe a file or folder. A file that breaks a rule gives an unsafe result, not an exception."""
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
    architecture = _architecture(file) if identity.kind is FileKind.CHECKPOINT else None
    prediction_type = architecture.prediction_type if architecture else None
    return Inspection(
        path=str(path),
        safe=True,
        why=SAFE_FORMAT if file.kind is Format.SAFETENSORS else SAFE_PICKLE,
        kind=identity.kind.value,
        base=identity.base,
        title=f"{identity.title}, v-prediction" if prediction_type == "v_prediction" else identity.title,
        dialect=identity.dialect,
        format=str(file.kind),
        prediction_type=prediction_type,
        num_tensors=len(specs),
        num_parameters=sum(_count(spec.shape) for spec in specs.values()),
        size_bytes=path.stat().st_size,
        sha256=file.sha256(),
        dtypes=dict(Counter(str(spec.dtype).removeprefix("torch.") for spec in specs.values())),
        metadata=dict(file.metadata),
        non_finite=tuple(find_non_finite(file)) if values else None,
        sampling=sampling_defaults(architecture) if architecture else None,
    )


def _architecture(file: TensorFile) -> Architecture | None:
    try:
        return architecture_of(file)
    except ModelFileError:
        return None  # a checkpoint of an unsupported family still gets a description


def _inspect_folder(folder: Path) -> Inspection:
    if not is_model_folder(folder):
        if not (folder / CONFIG).is_file():
            raise NotFoundError(f"{folder} is not a diffusers model folder: it has no model_index.json")
        return _unsafe_on_error(folder, _inspect_part)
    try:
        pipeline = str(read_json(folder / INDEX, inside=link_boundary(folder)).get("_class_name"))
    except ModelFileError as error:
        return Inspection(str(folder), safe=False, why=str(error))
    base, title = named_by_class(pipeline, PIPELINES) or ("unknown", pipeline)
    try:
        architecture = read_architecture(folder)
        with FolderWeights(folder, architecture) as weights:
            specs = [spec for part in architecture.parts() for spec in weights.specs(part).values()]
    except ModelFileError as error:
        if base in RUNNABLE:
            return Inspection(str(folder), safe=False, why=str(error), base=base, title=title)
        return _unsafe_on_error(folder, lambda path: _inspect_other_family(path, base, title))
    if base == "sd":
        title = BASE_TITLES[architecture.family]
    return Inspection(
        path=str(folder),
        safe=True,
        why=EVERY_FILE_CHECKED,
        kind=FileKind.CHECKPOINT.value,
        base=architecture.family,
        title=title,
        dialect="diffusers folder",
        format="folder",
        prediction_type=architecture.prediction_type,
        num_tensors=len(specs),
        num_parameters=sum(_count(spec.shape) for spec in specs),
        size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        sha256=folder_sha256(folder),
        dtypes=dict(Counter(str(spec.dtype).removeprefix("torch.") for spec in specs)),
        sampling=sampling_defaults(architecture),
    )


def _unsafe_on_error(folder: Path, inspect_folder: Callable[[Path], Inspection]) -> Inspection:
    """The result of `inspect_folder`, or an unsafe one that names the rule a file in the folder breaks."""
    try:
        return inspect_folder(folder)
    except ModelFileError as error:
        return Inspection(str(folder), safe=False, why=str(error))


def _inspect_other_family(folder: Path, base: str, title: str) -> Inspection:
    """Describe an unsupported pipeline; its weight files are still checked."""
    why = f"{EVERY_FILE_CHECKED}; this family cannot be run"
    inspection = _folder_inspection(folder, _specs_in(folder), why)
    return replace(inspection, kind=FileKind.CHECKPOINT.value, base=base, title=title)


def _inspect_part(folder: Path) -> Inspection:
    """Describe a folder with one part and its configuration, such as a ControlNet or a VAE."""
    config = read_json(folder / CONFIG, inside=link_boundary(folder))
    architectures = config.get("architectures")
    class_name = architectures[0] if isinstance(architectures, list) and architectures else None
    kind, title = named_by_class(str(config.get("_class_name") or class_name), PARTS) or ("unknown", "")
    specs = _specs_in(folder)
    identity = identify({name: spec.shape for name, spec in specs.items()})
    base, title = (identity.base, identity.title or title)
    scale = config.get("scaling_factor")
    if identity.base == SD_VAE and scale in SCALES:
        base, title = SCALES[scale]
    if identity.kind is not FileKind.UNKNOWN:
        kind = identity.kind.value
    return replace(_folder_inspection(folder, specs, EVERY_FILE_CHECKED), kind=kind, base=base, title=title)


def _specs_in(folder: Path) -> dict[str, TensorSpec]:
    """Every tensor of every weight file in the folder tree; checks each file's header."""
    specs: dict[str, TensorSpec] = {}
    for name in list_files(folder):
        if name.endswith(WEIGHT_FILES):
            with open_tensors(folder / name, inside=link_boundary(folder)) as file:
                tensors = FileTensors(file)
                part = "" if "/" not in name else f"{name.rpartition('/')[0]}/"
                specs |= {f"{part}{tensor}": tensors.spec(tensor) for tensor in tensors.names()}
    return specs


def _folder_inspection(folder: Path, specs: Mapping[str, TensorSpec], why: str) -> Inspection:
    return Inspection(
        path=str(folder),
        safe=True,
        why=why,
        dialect="diffusers folder",
        format="folder",
        num_tensors=len(specs),
        num_parameters=sum(_count(spec.shape) for spec in specs.values()),
        size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        sha256=folder_sha256(folder),
        dtypes=dict(Counter(str(spec.dtype).removeprefix("torch.") for spec in specs.values())),
    )


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
