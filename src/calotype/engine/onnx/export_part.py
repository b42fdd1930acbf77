"""A part of a model as an ONNX file. Knows nothing of models' layouts, nor whether the file is right."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from calotype.core.extras import MissingExtraError
from calotype.engine.onnx.wrappers import Part, Sizes

FILE, WEIGHTS_FILE = "model.onnx", "model.onnx_data"
MAX_FILE_BYTES = 2**31 - 2**26
"""Protocol buffers end at 2 GiB; the graph beside the weights needs some of it."""
OPSET = 18
"""The oldest that the exporter writes without translating, so that most runtimes read it."""
TRACED = Sizes(batch=3, height=15, width=19, tokens=11)
"""Sides that do not halve evenly: only then does diffusers' UNet measure what it must scale up to, and a
graph that measures is right for every size. No dimension is 1, which torch takes for a constant."""

# What torch says of its own insides, once per export.
_KNOWN_WARNINGS = (
    (FutureWarning, r".*isinstance\(treespec, LeafSpec\).*"),
    (UserWarning, r"# The axis name: .* will not be used.*"),
)


def check_exporter() -> None:
    """Refuse before any work where the packages are missing."""
    try:
        import onnx  # noqa: F401, PLC0415 - an extra
        import onnxruntime  # noqa: F401, PLC0415
        import onnxscript  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtraError(str(error.name), "onnx", "exporting to ONNX") from None


def write_graph(part: Part, folder: Path) -> None:
    """Write `model.onnx` into the folder, and its weights beside it when they are too many for one file."""
    import onnx_ir  # noqa: PLC0415 - an extra
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass  # noqa: PLC0415

    inputs = part.example(TRACED, torch.Generator().manual_seed(0))
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {name: dict.fromkeys(axes, dynamic) for name, axes in part.axes.items()}
    with _quiet():
        traced = torch.export.export(part, (), inputs, dynamic_shapes=shapes)
        program = torch.onnx.export(
            traced,
            input_names=list(inputs),
            output_names=list(part.outputs),
            # Traced already: these are names only.
            dynamic_shapes={name: dict(axes) for name, axes in part.axes.items()},
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    # Paths and lines of whoever exported say nothing to whoever runs it.
    model = ClearMetadataAndDocStringPass()(program.model).model
    tensors = [value.const_value for value in model.graph.initializers.values()]
    num_bytes = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    apart = WEIGHTS_FILE if num_bytes > MAX_FILE_BYTES else None
    onnx_ir.save(model, folder / FILE, external_data=apart)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says to its own developers."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    with warnings.catch_warnings():
        for kind, text in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", text, kind)
        log.setLevel(logging.ERROR)  # it misses torchvision, which nothing here uses
        try:
            yield
        finally:
            log.setLevel(level)
