"""Exports a model as a folder of ONNX files, in the layout of optimum's pipelines, atomically."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import nn

from calotype.core.errors import Problem, RequestError
from calotype.core.progress import Progress, Silent
from calotype.engine.onnx.export_part import FILE, check_exporter, write_graph
from calotype.engine.onnx.verify import Difference, difference, refuse_difference
from calotype.engine.onnx.wrappers import Part, kinds
from calotype.models.diffusers_layout import write_layout
from calotype.models.model import load_part, vae_dtype
from calotype.models.resolve import resolve_model
from calotype.models.save import refuse_existing, write_atomically
from calotype.models.weights import Weights

DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


def export(
    model: str,
    destination: Path,
    *,
    dtype: str = "fp32",
    check: bool = True,
    models_folder: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Difference | None]:
    """Write the model's parts as ONNX; returns each part's difference from torch, if checked.

    One part is in memory at a time. Each is checked right after it is written.
    """
    check_exporter()
    if dtype not in DTYPES:
        rule = f"{dtype[:60]!r} is not supported by ONNX runtimes; use {' or '.join(DTYPES)}"
        raise RequestError([Problem("dtype", rule, dtype[:60])])
    refuse_existing(destination)
    reporter = progress or Silent()
    resolved = resolve_model(model, models=models_folder)
    differences: dict[str, Difference | None] = {}
    with resolved.weights as weights, write_atomically(destination) as folder:
        write_layout(folder, weights.architecture)
        _split_vae(folder)
        parts = kinds(weights.architecture)
        reporter.start("exporting", len(parts))
        for name, (source, kind) in parts.items():
            reporter.describe(f"exporting {name}")
            wanted = DTYPES[dtype]
            part_dtype = vae_dtype(weights.architecture, wanted) if source == "vae" else wanted
            part = kind(_network(weights, source, resolved.identity.reference, part_dtype))
            write_graph(part, folder / name)
            differences[name] = _verify(name, part, folder / name / FILE, part_dtype) if check else None
            del part  # before the next is loaded: a UNet may take most of the memory
            reporter.advance()
    return differences


def _network(weights: Weights, part: str, reference: str, dtype: torch.dtype) -> nn.Module:
    device = torch.device("cpu")
    return load_part(weights, part, source=reference, dtype=dtype, device=device, progress=Silent())


def _verify(name: str, part: Part, file: Path, dtype: torch.dtype) -> Difference:
    result = difference(part, file)
    refuse_difference(name, result, dtype)
    return result


def _split_vae(folder: Path) -> None:
    """Copy the VAE's configuration to encoder and decoder."""
    shutil.copytree(folder / "vae", folder / "vae_encoder")
    (folder / "vae").rename(folder / "vae_decoder")
