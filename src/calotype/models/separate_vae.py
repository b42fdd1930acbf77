"""A VAE that comes in a file of its own, in the original or the diffusers naming, for use with another model.

Knows nothing of pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from calotype.core.errors import ModelFileError
from calotype.core.progress import Silent
from calotype.models.architecture import Architecture
from calotype.models.files.converted import open_tensors
from calotype.models.identify import FileKind, identify
from calotype.models.model import load_part, vae_dtype
from calotype.models.naming.original import VAE, Correspondence, vae_correspondences
from calotype.models.weights import FileTensors, NamedTensors, TensorSpec, check_shapes, todays_name


class _VaeWeights:
    """The autoencoder's part of `Weights`, from one file; there is no other part."""

    def __init__(self, path: Path, architecture: Architecture, tensors: FileTensors, dialect: str) -> None:
        self.architecture = architecture
        self._tensors = tensors
        names = tensors.names()
        # Old diffusers files have other names for the attention; original ones are not touched by this.
        self._actual = {todays_name(name, "vae"): name for name in names}
        rows = _rows(architecture, dialect, prefixed=any(name.startswith(VAE) for name in names))
        self._rows = {row.pieces[0][1]: row for row in rows}
        shapes = {"vae": architecture.tensor_shapes("vae")}
        expected = {row.original: row.original_shape(shapes) for row in rows}
        found = {
            name: tensors.spec(actual).shape for name, actual in self._actual.items() if name in expected
        }
        check_shapes(path, expected, found)

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        shapes = self.architecture.tensor_shapes(part)
        return {
            name: TensorSpec(self._tensors.spec(self._file_name(name)).dtype, shapes[name]) for name in shapes
        }

    def _file_name(self, name: str) -> str:
        return self._actual[self._rows[name].original]

    def read(self, _part: str, name: str) -> Tensor:
        (tensor,) = self._rows[name].from_original(self._tensors.read(self._file_name(name)))
        return tensor

    def extra(self) -> NamedTensors | None:
        return None


def _rows(architecture: Architecture, dialect: str, *, prefixed: bool) -> list[Correspondence]:
    if dialect == "diffusers":
        return [Correspondence(name, (("vae", name),)) for name in architecture.tensor_shapes("vae")]
    return vae_correspondences(architecture, VAE if prefixed else "")


def read_vae(path: Path, architecture: Architecture, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """The autoencoder in `path`, of the form this architecture has. A whole checkpoint gives its own."""
    with open_tensors(path) as file:
        tensors = FileTensors(file)
        identity = identify({name: tensors.spec(name).shape for name in tensors.names()})
        if identity.kind not in (FileKind.VAE, FileKind.CHECKPOINT):
            raise ModelFileError(path, f"is not a VAE but: {identity.kind.value}")
        weights = _VaeWeights(path, architecture, tensors, identity.dialect)
        chosen = vae_dtype(architecture, dtype)
        return load_part(weights, "vae", source=str(path), dtype=chosen, device=device, progress=Silent())
