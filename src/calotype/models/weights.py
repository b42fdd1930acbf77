"""Reads a model's tensors one at a time under diffusers names: from a folder, a single file or a random seed.

All sources implement the `Weights` protocol, so loading and converting are the same code for each. Tensors
are read on demand and not cached; only a tensor that is split into several keeps the pieces not yet read.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.architecture import Architecture, published_name
from calotype.models.files.base import TensorReader
from calotype.models.files.dtypes import TORCH_DTYPES
from calotype.models.files.open import open_tensors
from calotype.models.files.safetensors_reader import TensorFile
from calotype.models.files.sharded import open_weights, present_stem
from calotype.models.hub import link_boundary
from calotype.models.key_mapping import vae as vae_naming
from calotype.models.key_mapping.ldm import key_mappings, usual_name
from calotype.models.single_file import ARCHITECTURE_KEY

EXTRA_STEM = "calotype_extra"
"""File stem for tensors of an original file that have no place in a diffusers folder (EMA copies, schedules).
They are stored next to the parts, so that converting back loses nothing."""

MAX_AHEAD = 16
"""Tensors that are read at the same time; the largest of a large model takes 0.25 GB meanwhile."""

DIFFUSERS_STEM, TRANSFORMERS_STEM, OLD_TRANSFORMERS_STEM = "diffusion_pytorch_model", "model", "pytorch_model"


def part_stem(part: str) -> str:
    """The file name, without suffix, that diffusers and transformers expect in a part's folder."""
    return TRANSFORMERS_STEM if part.startswith("text_encoder") else DIFFUSERS_STEM


class TensorSpec(NamedTuple):
    """Dtype and shape of a tensor, known before it is read."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class NamedTensors(Protocol):
    """Tensors by name, from any source."""

    def names(self) -> list[str]: ...

    def spec(self, name: str) -> TensorSpec: ...

    def read(self, name: str) -> Tensor: ...


class FileTensors:
    """All or some of a file's tensors, under the file's names."""

    def __init__(self, file: TensorReader, names: Iterable[str] | None = None) -> None:
        self._file = file
        self._names = list(file if names is None else names)

    def only(self, names: Iterable[str]) -> FileTensors:
        """The same file, restricted to these tensors."""
        return FileTensors(self._file, names)

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
    """A context manager that keeps files open while the weights are in use."""

    _files: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()


class FolderWeights(_Closing):
    """Tensors of a diffusers folder: safetensors or old pickles, whole or in shards, fp16 variant or not."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        self.architecture = architecture
        self._tensors: dict[str, FileTensors] = {}
        self._names: dict[str, dict[str, str]] = {}
        self._extra: FileTensors | None = None
        inside = link_boundary(folder)
        with ExitStack() as files:
            for part in architecture.parts():
                part_folder = folder / part
                stem = stem_present(part_folder, part)
                reader = files.enter_context(open_weights(part_folder, stem, inside=inside))
                self._tensors[part] = FileTensors(reader)
                self._names[part] = {
                    current_key(name, part): name for name in reader if not _is_derived(name)
                }
                actual = {name: spec.shape for name, spec in self.specs(part).items()}
                check_shapes(part_folder, architecture.tensor_shapes(part), actual)
            extra = folder / f"{EXTRA_STEM}.safetensors"
            if extra.exists():
                self._extra = FileTensors(files.enter_context(open_tensors(extra, inside=inside)))
            self._files = files.pop_all()

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return {name: self._tensors[part].spec(actual) for name, actual in self._names[part].items()}

    def read(self, part: str, name: str) -> Tensor:
        return self._tensors[part].read(self._names[part][name])

    def extra(self) -> NamedTensors | None:
        return self._extra


def stem_present(folder: Path, part: str) -> str:
    """The stem of the weight files in a part's folder.

    Safetensors precede pickles; full precision precedes the fp16 variant, which some folders hold alone.
    """
    default = part_stem(part)
    stems = (default, OLD_TRANSFORMERS_STEM) if default == TRANSFORMERS_STEM else (default,)
    return present_stem(folder, [f"{stem}{variant}" for variant in ("", ".fp16") for stem in stems])


def current_key(name: str, part: str) -> str:
    """The published name of a tensor that older or newer libraries write under another name."""
    return vae_naming.current_key(name) if part == "vae" else published_name(name, part)


def _is_derived(name: str) -> bool:
    """Whether a tensor is derived: files of old text encoders also hold the position ids 0 to 76."""
    return name.endswith("position_ids")


class SingleFileWeights(_Closing):
    """Tensors of one file in the original naming, under diffusers names."""

    def __init__(self, file: TensorFile, architecture: Architecture) -> None:
        """Take ownership of `file`: it is closed with these weights, or at once if it does not fit."""
        self.architecture = architecture
        self._tensors = FileTensors(file)
        self._actual = {usual_name(name): name for name in file}
        self._pending_pieces: dict[str, dict[int, Tensor]] = {}
        with ExitStack() as files:
            files.enter_context(file)
            self._rows = {row.original: row for row in key_mappings(architecture, self._actual)}
            self._row_of_piece = {
                piece: (row, i) for row in self._rows.values() for i, piece in enumerate(row.pieces)
            }
            shapes = {part: architecture.tensor_shapes(part) for part in architecture.parts()}
            expected = {name: row.original_shape(shapes) for name, row in self._rows.items()}
            actual = {name: self._spec(name).shape for name in self._actual if name in expected}
            check_shapes(file.path, expected, actual)
            self._refuse_scales(file.path)
            self._files = files.pop_all()

    def _refuse_scales(self, path: Path) -> None:
        """Reject eight-bit weights with separate scales; without the scale, their values are wrong."""
        for name in self._actual:
            module, _, last = name.rpartition(".")
            weight = f"{module}.weight"
            if "scale" in last and weight in self._rows and self._spec(weight).dtype.itemsize == 1:
                rule = f"{name!r} is the scale of {weight!r}; quantized files cannot be loaded"
                raise ModelFileError(path, rule)

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        shapes = self.architecture.tensor_shapes(part)
        originals = {name: self._row_of_piece[part, name][0].original for name in shapes}
        return {name: TensorSpec(self._spec(originals[name]).dtype, shape) for name, shape in shapes.items()}

    def _spec(self, original: str) -> TensorSpec:
        return self._tensors.spec(self._actual[original])

    def read(self, part: str, name: str) -> Tensor:
        row, index = self._row_of_piece[part, name]
        if index not in self._pending_pieces.get(row.original, {}):
            # Readers alternate between the pieces of a joined weight and of its bias: two rows suffice.
            while len(self._pending_pieces) > 1:
                self._pending_pieces.pop(next(iter(self._pending_pieces)))
            pieces = row.from_original(self._tensors.read(self._actual[row.original]))
            self._pending_pieces[row.original] = dict(enumerate(pieces))
        piece = self._pending_pieces[row.original].pop(index)
        if not self._pending_pieces[row.original]:
            del self._pending_pieces[row.original]
        return piece

    def extra(self) -> NamedTensors | None:
        # The stored architecture describes this file, not files converted from it.
        used = (*self._rows, ARCHITECTURE_KEY)
        unused = [name for usual, name in self._actual.items() if usual not in used]
        return self._tensors.only(unused) if unused else None


class RandomWeights:
    """Seeded random weights for an architecture, scaled so that activations stay finite in fp16.

    A tensor's values depend only on the seed and its name, so tensors can be generated in any order.
    """

    def __init__(self, architecture: Architecture, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.architecture, self._seed, self._dtype = architecture, seed, dtype

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        shapes = self.architecture.tensor_shapes(part)
        return {name: TensorSpec(self._dtype, shape) for name, shape in shapes.items()}

    def read(self, part: str, name: str) -> Tensor:
        shape = self.architecture.tensor_shapes(part)[name]
        digest = hashlib.sha256(f"{self._seed}/{part}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
        values = torch.empty(shape, dtype=torch.float32)
        if len(shape) == 1:
            # One-dimensional weights belong to norms and are near one; biases are near zero.
            values.normal_(1.0 if name.endswith("weight") else 0.0, 0.02, generator=generator)
        elif name.endswith(("token_embedding.weight", "position_embedding.weight")):
            values.normal_(0.0, 0.02, generator=generator)
        else:
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            values.uniform_(-bound, bound, generator=generator)
        return values.to(self._dtype)

    def extra(self) -> NamedTensors | None:
        return None


def in_order(weights: Weights, part: str) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a part, read ahead by several threads.

    One thread takes a minute to generate a large model's random weights; reading a file overlaps with the
    transfer of earlier tensors to the GPU.
    """
    names = list(weights.specs(part))
    ahead = min(MAX_AHEAD, os.cpu_count() or 1)
    with ThreadPoolExecutor(ahead) as threads:
        pending: deque[Future[Tensor]] = deque()
        for index, name in enumerate(names):
            for next_name in names[index + len(pending) : index + ahead]:
                pending.append(threads.submit(weights.read, part, next_name))
            yield name, pending.popleft().result()


def check_shapes(
    file: object, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ModelFileError for weights that do not fit the architecture, naming the first such tensor."""
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
        rule = f"{len(unknown)} tensors are not of this architecture, the first is {unknown[0]!r}"
        raise ModelFileError(file, rule)
