"""One safetensors shard of latents and embeddings: written at once, read one row at a time.

Rows may differ in shape, as with buckets, so each column is one flat tensor beside a table of row shapes. The
offset of a row follows from the shapes, and the header stays small however many rows there are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.files.dtypes import TORCH_DTYPES
from calotype.models.files.safe_open import open_model_file
from calotype.models.files.safetensors_header import read_header
from calotype.models.files.safetensors_reader import open_safetensors
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.files.sniff import FileKind
from calotype.train.data.types import Sample, Text

EMPTY_TEXT = "empty_text.safetensors"
_TENSORS = ("latents", "context", "pooled")
_TEXTS = ("key", "caption")
_SHAPES = "{}.shapes"


def write_shard(path: Path, samples: Sequence[Sample], metadata: Mapping[str, str]) -> None:
    """Write `samples` to `path` atomically."""
    columns: dict[str, list[Tensor]] = {}
    for name in _TENSORS:
        present = [tensor for sample in samples if (tensor := getattr(sample, name)) is not None]
        if present and len(present) != len(samples):
            raise ValueError(f"{len(present)} of {len(samples)} samples have {name}; all or none must")
        columns |= {name: present} if present else {}
    for name in _TEXTS:
        texts = [(getattr(sample, name) or "").encode() for sample in samples]
        columns[name] = [torch.tensor(list(text), dtype=torch.uint8) for text in texts]
    columns["size"] = [torch.tensor(sample.size or (0,) * 6) for sample in samples]
    tensors: dict[str, Tensor] = {}
    for name, rows in columns.items():
        tensors |= _flat(name, rows)
    declared = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    write_safetensors(path, declared, tensors.__getitem__, metadata)


def write_text(path: Path, text: Text) -> None:
    """Write a caption's embedding to its own file."""
    tensors = {"context": text.context} | ({} if text.pooled is None else {"pooled": text.pooled})
    declared = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    write_safetensors(path, declared, tensors.__getitem__)


def read_text(path: Path) -> Text:
    """Read a file of `write_text`."""
    with open_safetensors(path) as file:
        return Text(file.read("context"), file.read("pooled") if "pooled" in file else None)


def _flat(name: str, rows: Sequence[Tensor]) -> dict[str, Tensor]:
    kinds = {(row.dtype, row.dim()) for row in rows}
    if len(kinds) != 1:
        raise ValueError(f"{name} must be alike in dtype and dimensions within a shard, not {kinds}")
    shapes = torch.tensor([row.shape for row in rows], dtype=torch.int64)
    return {name: torch.cat([row.detach().cpu().reshape(-1) for row in rows]), _SHAPES.format(name): shapes}


class PrecomputedShard:
    """An open shard; rows are read by offset, so processes can share it."""

    def __init__(self, path: Path) -> None:
        self._opened = open_model_file(path)
        try:
            if self._opened.kind is not FileKind.SAFETENSORS:
                raise ModelFileError(path, f"is a {self._opened.kind}, not safetensors")
            self._header = read_header(self._opened)
            self._shapes = {
                name: self._read_shapes(name)
                for name in (*_TENSORS, *_TEXTS, "size")
                if name in self._header.tensors
            }
            # The end of each row in its flat column.
            self._ends = {name: shapes.prod(dim=1).cumsum(0) for name, shapes in self._shapes.items()}
            self._check_columns()
        except BaseException:
            self._opened.close()
            raise

    def __len__(self) -> int:
        return len(self._shapes["key"])

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._header.metadata

    @property
    def latent_shapes(self) -> Tensor:
        """(n, 3): channels, height and width of each row's latents."""
        return self._shapes["latents"]

    def read(self, row: int) -> Sample:
        tensors = {name: self._row(name, row) for name in self._shapes}
        key, caption = (bytes(tensors[name].tolist()).decode() for name in _TEXTS)
        size = tuple(tensors["size"].tolist())
        self._opened.check_unchanged()
        return Sample(
            key,
            caption=caption,
            latents=tensors["latents"],
            context=tensors.get("context"),
            pooled=tensors.get("pooled"),
            size=size if any(size) else None,
        )

    def close(self) -> None:
        self._opened.close()

    def _row(self, name: str, row: int) -> Tensor:
        shape = self._shapes[name][row].tolist()
        count = torch.Size(shape).numel()
        return self._items(name, int(self._ends[name][row]) - count, count).reshape(shape)

    def _items(self, name: str, first: int, count: int) -> Tensor:
        entry = self._header.tensors[name]
        tensor = torch.empty(count, dtype=TORCH_DTYPES[entry.dtype])
        if count:
            begin = self._header.data_start + entry.start + first * tensor.element_size()
            self._opened.read_into(tensor.view(torch.uint8).numpy().data, begin)
        return tensor

    def _read_shapes(self, name: str) -> Tensor:
        entry = self._header.tensors.get(_SHAPES.format(name))
        if entry is None or entry.dtype != "I64" or len(entry.shape) != 2:
            raise ModelFileError(self._opened.path, f"has no table of shapes for its {name}")
        return self._items(_SHAPES.format(name), 0, torch.Size(entry.shape).numel()).reshape(entry.shape)

    def _check_columns(self) -> None:
        for required in ("latents", *_TEXTS, "size"):
            if required not in self._shapes:
                raise ModelFileError(self._opened.path, f"is not a precomputed shard: it has no {required}")
        for name, shapes in self._shapes.items():
            stored = torch.Size(self._header.tensors[name].shape).numel()
            claimed = int(self._ends[name][-1]) if len(shapes) else 0
            if name == "latents" and shapes.shape[1] != 3:
                raise ModelFileError(
                    self._opened.path, f"its latents have {shapes.shape[1]} dimensions, not 3"
                )
            if len(shapes) != len(self) or bool((shapes < 0).any()) or claimed != stored:
                rule = f"its {name} hold {stored} values for {len(shapes)} rows that claim {claimed}"
                raise ModelFileError(self._opened.path, rule)
