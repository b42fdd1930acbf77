"""Loads a separate VAE that replaces a model's own.

It is a file in the original or the diffusers naming, or a diffusers folder, which states its architecture and
scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from calotype.core.errors import ModelFileError
from calotype.core.progress import Silent
from calotype.models.architecture import VAE as VAE_CLASS
from calotype.models.architecture import Architecture, vae_factor
from calotype.models.diffusers_layout import is_model_folder
from calotype.models.file_detection import FileKind, identify
from calotype.models.files.open import open_tensors
from calotype.models.files.sharded import open_weights
from calotype.models.hub import link_boundary
from calotype.models.json_file import read_json
from calotype.models.key_mapping.ldm import VAE, KeyMapping, vae_key_mappings
from calotype.models.model import load_part, vae_dtype
from calotype.models.resolve import configured_sha256, file_sha256
from calotype.models.weights import (
    FileTensors,
    NamedTensors,
    TensorSpec,
    Weights,
    check_shapes,
    current_key,
    stem_present,
)

CONFIG = "config.json"
VAE_DIALECTS = ("original", "diffusers")
"""Naming schemes of Stable Diffusion's kind of VAE."""


class _VaeWeights:
    """`Weights` with the VAE part only, from one file."""

    def __init__(self, path: Path, architecture: Architecture, tensors: FileTensors, dialect: str) -> None:
        self.architecture = architecture
        self._tensors = tensors
        names = tensors.names()
        # Old diffusers files name the attention differently; this leaves original names unchanged.
        self._actual = {current_key(name, "vae"): name for name in names}
        rows = _rows(architecture, dialect, prefixed=any(name.startswith(VAE) for name in names))
        self._rows = {row.pieces[0][1]: row for row in rows}
        shapes = {"vae": architecture.tensor_shapes("vae")}
        expected = {row.original: row.original_shape(shapes) for row in rows}
        actual_shapes = {
            name: tensors.spec(actual).shape for name, actual in self._actual.items() if name in expected
        }
        check_shapes(path, expected, actual_shapes)

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


def _rows(architecture: Architecture, dialect: str, *, prefixed: bool) -> list[KeyMapping]:
    if dialect == "diffusers":
        return [KeyMapping(name, (("vae", name),)) for name in architecture.tensor_shapes("vae")]
    return vae_key_mappings(architecture, VAE if prefixed else "")


def read_vae(
    path: Path,
    architecture: Architecture,
    dtype: torch.dtype,
    device: torch.device,
    *,
    outlined: bool = False,
) -> nn.Module:
    """Load the VAE in `path` for a model of this architecture. A whole checkpoint provides its own VAE.

    `outlined` means the same as in `Model`.
    """
    with _opened(path, architecture) as weights:
        loaded_dtype = vae_dtype(weights.architecture, dtype)
        return load_part(
            weights,
            "vae",
            source=str(path),
            dtype=loaded_dtype,
            device=device,
            progress=Silent(),
            outlined=outlined,
        )


@contextmanager
def override_vae(weights: Weights, path: Path) -> Iterator[Weights]:
    """Yield the same weights with the VAE in `path` in place of their own."""
    with _opened(path, weights.architecture) as vae:
        yield _OverriddenWeights(weights, vae)


def vae_sha256(path: Path) -> str:
    """A hash that identifies the VAE in `path` and its scale: latents of two scales are incompatible."""
    return configured_sha256(_vae_folder(path), CONFIG) if path.is_dir() else file_sha256(path)


class _OverriddenWeights:
    """A model's weights with another VAE."""

    def __init__(self, weights: Weights, vae: Weights) -> None:
        self.architecture = vae.architecture
        self._weights, self._vae = weights, vae

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return (self._vae if part == "vae" else self._weights).specs(part)

    def read(self, part: str, name: str) -> Tensor:
        return (self._vae if part == "vae" else self._weights).read(part, name)

    def extra(self) -> NamedTensors | None:
        return self._weights.extra()


@contextmanager
def _opened(path: Path, architecture: Architecture) -> Iterator[Weights]:
    if path.is_dir():
        folder, inside = _vae_folder(path), link_boundary(path)
        architecture = _configured(architecture, folder, inside)
        file = open_weights(folder, stem_present(folder, "vae"), inside=inside)
    else:
        file = open_tensors(path)
    with file:
        tensors = FileTensors(file)
        identity = identify({name: tensors.spec(name).shape for name in tensors.names()})
        if identity.kind not in (FileKind.VAE, FileKind.CHECKPOINT):
            named = f" ({identity.title})" if identity.title else ""
            raise ModelFileError(path, f"is not a VAE but: {identity.kind.value}{named}")
        if identity.dialect not in VAE_DIALECTS:
            rule = f"is the {identity.title}, whose architecture differs from the VAE of {architecture.title}"
            raise ModelFileError(path, rule)
        yield _VaeWeights(path, architecture, tensors, identity.dialect)


def _vae_folder(path: Path) -> Path:
    return path / "vae" if is_model_folder(path) else path


def _configured(architecture: Architecture, folder: Path, inside: Path) -> Architecture:
    """The architecture with the folder's VAE, whose latents must have the same channels and scale."""
    config = {"_class_name": VAE_CLASS, **read_json(folder / CONFIG, inside=inside)}
    try:
        changed = replace(architecture, vae=config)
        actual, expected = ((a.latent_channels, vae_factor(a.vae)) for a in (changed, architecture))
    except (ValueError, TypeError) as error:
        raise ModelFileError(folder, f"its configuration cannot be used: {error}") from error
    if actual != expected:
        forms = [
            f"{channels} channels and {factor}×{factor} pixels each"
            for channels, factor in (actual, expected)
        ]
        raise ModelFileError(folder, f"its latents have {forms[0]}, {architecture.title} uses {forms[1]}")
    return changed
