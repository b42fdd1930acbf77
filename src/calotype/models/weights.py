"""Where a model's tensors come from, one at a time, under diffusers names.

A folder, a single original file and seeded random numbers all answer the same three questions, so loading,
converting and inventing models are the same code. Nothing here holds more than one tensor in memory.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture
from calotype.models.files.converted import open_tensors
from calotype.models.files.dtypes import TORCH_DTYPES
from calotype.models.files.sharded import open_weights
from calotype.models.files.tensor_file import TensorFile, TensorReader
from calotype.models.naming import vae as vae_naming
from calotype.models.naming.original import SD1_TEXT, correspondences

EXTRA_STEM = "calotype_extra"
"""Tensors of an original file that a diffusers folder has no place for (EMA copies, schedules) are kept under this
name beside the parts, so that converting back loses nothing."""

PART_STEMS = {"unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model"}


def part_stem(part: str) -> str:
    """The file name, without suffix, that diffusers and transformers look for in a part's folder."""
    return PART_STEMS.get(part, "model")


class TensorSpec(NamedTuple):
    """What a tensor will be, before it is read."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class NamedTensors(Protocol):
    """Tensors by name, whoever keeps them."""

    def names(self) -> list[str]: ...

    def spec(self, name: str) -> TensorSpec: ...

    def read(self, name: str) -> Tensor: ...


class FileTensors:
    """All or some of a file's tensors, under the names the file gives them."""

    def __init__(self, file: TensorReader, names: Iterable[str] | None = None) -> None:
        self._file = file
        self._names = list(file.keys() if names is None else names)

    def names(self) -> list[str]:
        return self._names

    def spec(self, name: str) -> TensorSpec:
        entry = self._file.entry(name)
        return TensorSpec(TORCH_DTYPES[entry.dtype], tuple(entry.shape))

    def read(self, name: str) -> Tensor:
        return self._file.read(name)


class Weights(Protocol):
    """A model's tensors by part and diffusers name."""

    @property
    def architecture(self) -> Architecture: ...

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        """Dtype and shape of every tensor of the part."""
        ...

    def read(self, part: str, name: str) -> Tensor: ...

    def extra(self) -> NamedTensors | None:
        """Tensors that belong to no part, under their original names."""
        ...


class _Closing:
    """Keeps files open for as long as the weights are in use."""

    def __init__(self) -> None:
        self._files = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()


class FolderWeights(_Closing):
    """Tensors of a diffusers folder: safetensors or old pickles, whole or in shards, with or without a variant."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self._tensors: dict[str, FileTensors] = {}
        self._names: dict[str, dict[str, str]] = {}
        for part in architecture.parts():
            # A hub cache keeps its files apart and links to them, so links may lead anywhere inside that cache.
            inside = folder.parents[1] if folder.parent.name == "snapshots" else folder
            reader = self._files.enter_context(open_weights(folder / part, _stem_present(folder, part), inside=inside))
            self._tensors[part] = FileTensors(reader)
            self._names[part] = _present_names(reader, part)
            check_shapes(folder / part, architecture.tensor_shapes(part), _shapes(self.specs(part)))
        extra = folder / f"{EXTRA_STEM}.safetensors"
        self._extra = FileTensors(self._files.enter_context(open_tensors(extra))) if extra.is_file() else None

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return {name: self._tensors[part].spec(actual) for name, actual in self._names[part].items()}

    def read(self, part: str, name: str) -> Tensor:
        return self._tensors[part].read(self._names[part][name])

    def extra(self) -> NamedTensors | None:
        return self._extra


def _stem_present(folder: Path, part: str) -> str:
    """Full precision if it is there, else the fp16 variant that some folders hold alone."""
    stem = part_stem(part)
    for candidate in (stem, f"{stem}.fp16"):
        if any((folder / part / f"{candidate}{end}").is_file() for end in (".safetensors", ".safetensors.index.json", ".bin")):
            return candidate
    return stem


def _shapes(specs: Mapping[str, TensorSpec]) -> dict[str, tuple[int, ...]]:
    return {name: spec.shape for name, spec in specs.items()}


def _present_names(reader: TensorReader, part: str) -> dict[str, str]:
    """Today's name → the name in the file, for the tensors a module has (old files also hold position ids)."""
    names = {}
    for actual in reader.keys():
        name = actual
        if part == "vae":
            for old, new in vae_naming.OLD_ATTENTION.items():
                name = name.replace(f".attentions.0.{old}.", f".attentions.0.{new}.")
        elif part.startswith("text_encoder") and not name.startswith(("text_model.", "text_projection.")):
            name = f"text_model.{name}"
        if not name.endswith("position_ids"):
            names[name] = actual
    return names


class SingleFileWeights(_Closing):
    """Tensors of one file in the original naming, seen under diffusers names."""

    def __init__(self, file: TensorFile, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self._file = self._files.enter_context(file)
        self._tensors = FileTensors(self._file)
        self._actual = {_usual_name(name): name for name in self._tensors.names()}
        self._rows = {row.original: row for row in correspondences(architecture)}
        self._where = {piece: (row, i) for row in self._rows.values() for i, piece in enumerate(row.pieces)}
        self._cut: dict[str, list[Tensor]] = {}
        shapes = {part: architecture.tensor_shapes(part) for part in architecture.parts()}
        expected = {name: row.original_shape(shapes) for name, row in self._rows.items()}
        found = {name: self._spec(name).shape for name in self._actual if name in expected}
        check_shapes(file.path, expected, found)

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        shapes = self.architecture.tensor_shapes(part)
        originals = {name: self._where[part, name][0].original for name in shapes}
        return {name: TensorSpec(self._spec(originals[name]).dtype, shape) for name, shape in shapes.items()}

    def _spec(self, original: str) -> TensorSpec:
        return self._tensors.spec(self._actual[original])

    def read(self, part: str, name: str) -> Tensor:
        row, index = self._where[part, name]
        if row.original not in self._cut:
            # The pieces of a joined weight and of its bias are asked for in turns: keep the last two.
            while len(self._cut) > 1:
                self._cut.pop(next(iter(self._cut)))
            self._cut[row.original] = row.from_original(self._tensors.read(self._actual[row.original]))
        return self._cut[row.original][index]

    def extra(self) -> NamedTensors | None:
        left = [name for usual, name in self._actual.items() if usual not in self._rows]
        return FileTensors(self._file, left) if left else None


def _usual_name(name: str) -> str:
    """Some tools wrote the SD 1 text encoder without its `text_model.` level."""
    rest = name.removeprefix(SD1_TEXT)
    if rest != name and rest.startswith(("embeddings.", "encoder.", "final_layer_norm.")):
        return f"{SD1_TEXT}text_model.{rest}"
    return name


class RandomWeights:
    """Seeded random numbers for the exact architecture, scaled so that activations stay finite in half precision.

    Each tensor's numbers depend on the seed and its own name only, so any tensor can be made alone, in any order.
    """

    def __init__(self, architecture: Architecture, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.architecture, self._seed, self._dtype = architecture, seed, dtype

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return {name: TensorSpec(self._dtype, shape) for name, shape in self.architecture.tensor_shapes(part).items()}

    def read(self, part: str, name: str) -> Tensor:
        shape = self.architecture.tensor_shapes(part)[name]
        digest = hashlib.sha256(f"{self._seed}/{part}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
        values = torch.empty(shape, dtype=torch.float32)
        if len(shape) == 1:
            # One-dimensional weights are norms: near one. Biases: near zero.
            values.normal_(1.0 if name.endswith("weight") else 0.0, 0.02, generator=generator)
        elif "embedding" in name and "time" not in name and "add_" not in name:
            values.normal_(0.0, 0.02, generator=generator)
        else:
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            values.uniform_(-bound, bound, generator=generator)
        return values.to(self._dtype)

    def extra(self) -> NamedTensors | None:
        return None


def check_shapes(
    file: object, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse weights that do not fit the architecture, naming the first tensor that differs."""
    missing = sorted(set(expected) - set(found))
    if missing:
        rule = f"{len(missing)} of {len(expected)} tensors are missing, the first is {missing[0]!r}"
        raise ModelFileError(file, f"{rule}; is the file complete and for this architecture?")
    for name, shape in expected.items():
        if found[name] != shape:
            rule = f"{name!r} has shape {list(found[name])} where this architecture has {list(shape)}"
            raise ModelFileError(file, rule)
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise ModelFileError(file, f"{len(unknown)} tensors are not of this architecture, the first is {unknown[0]!r}")

