"""A model as a folder of ONNX files, in the layout of optimum's pipelines: the whole of it, or nothing.

Knows nothing of the command line.
"""

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
    """Write the model's parts as ONNX; the answer says how far each is from torch, if that was checked.

    One part is in memory at a time. Each is checked right after it was written.
    """
    check_exporter()
    if dtype not in DTYPES:
        rule = f"{dtype[:60]!r} is not among {' and '.join(DTYPES)}, which ONNX runtimes can compute in"
        raise RequestError([Problem("dtype", rule, dtype[:60])])
    refuse_existing(destination)
    watcher = progress or Silent()
    found = resolve_model(model, models=models_folder)
    differences: dict[str, Difference | None] = {}
    with found.weights as weights, write_atomically(destination) as folder:
        write_layout(folder, weights.architecture)
        _split_vae(folder)
        parts = kinds(weights.architecture)
        watcher.start("exporting", len(parts))
        for name, (source, kind) in parts.items():
            watcher.describe(f"exporting {name}")
            wanted = DTYPES[dtype]
            part_dtype = vae_dtype(weights.architecture, wanted) if source == "vae" else wanted
            part = kind(_network(weights, source, found.identity.reference, part_dtype))
            write_graph(part, folder / name)
            differences[name] = _checked(name, part, folder / name / FILE, part_dtype) if check else None
            del part  # before the next is loaded: a UNet is most of a machine's memory
            watcher.advance()
    return differences


def _network(weights: Weights, part: str, reference: str, dtype: torch.dtype) -> nn.Module:
    device = torch.device("cpu")
    return load_part(weights, part, source=reference, dtype=dtype, device=device, progress=Silent())


def _checked(name: str, part: Part, file: Path, dtype: torch.dtype) -> Difference:
    found = difference(part, file)
    refuse_difference(name, found, dtype)
    return found


def _split_vae(folder: Path) -> None:
    """The autoencoder's configuration goes with both of its halves."""
    shutil.copytree(folder / "vae", folder / "vae_encoder")
    (folder / "vae").rename(folder / "vae_decoder")
