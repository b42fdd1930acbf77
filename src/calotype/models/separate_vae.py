"""A VAE that comes in a file of its own, in the original or the diffusers naming, for use with another model."""

from __future__ import annotations

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
from calotype.models.weights import FileTensors, NamedTensors, TensorSpec, check_shapes


class _VaeWeights:
    """The autoencoder's part of `Weights`, from one file."""

    def __init__(self, architecture: Architecture, tensors: FileTensors, rows: dict[str, Correspondence]) -> None:
        self.architecture = architecture
        self._tensors, self._rows = tensors, rows

    def specs(self, part: str) -> dict[str, TensorSpec]:
        shapes = self.architecture.tensor_shapes(part)
        return {name: TensorSpec(self._tensors.spec(row.original).dtype, shapes[name]) for name, row in self._rows.items()}

    def read(self, part: str, name: str) -> Tensor:
        assert part == "vae"
        row = self._rows[name]
        return row.from_original(self._tensors.read(row.original))[0]

    def extra(self) -> NamedTensors | None:
        return None


def read_vae(path: Path, architecture: Architecture, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """The autoencoder in `path`, of the form this architecture has."""
    with open_tensors(path) as file:
        tensors = FileTensors(file)
        identity = identify({name: tensors.spec(name).shape for name in tensors.names()})
        if identity.kind not in (FileKind.VAE, FileKind.CHECKPOINT):
            raise ModelFileError(path, f"is not a VAE but: {identity.kind.value}")
        if identity.dialect == "diffusers":
            rows = [Correspondence(name, (("vae", name),)) for name in architecture.tensor_shapes("vae")]
        else:
            prefix = VAE if any(name.startswith(VAE) for name in tensors.names()) else ""
            rows = vae_correspondences(architecture, prefix)
        shapes = {"vae": architecture.tensor_shapes("vae")}
        present = set(tensors.names())
        expected = {row.original: row.original_shape(shapes) for row in rows}
        check_shapes(path, expected, {name: tensors.spec(name).shape for name in expected if name in present})
        weights = _VaeWeights(architecture, tensors, {row.pieces[0][1]: row for row in rows})
        return load_part(weights, "vae", vae_dtype(architecture, dtype), device, str(path), Silent())
