"""Exports a part of a model as an ONNX file."""

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
"""Protocol buffers are limited to 2 GiB; the graph needs some of it beside the weights."""
OPSET = 18
"""The oldest opset that the exporter writes without conversion, so that most runtimes read it."""
TRACED = Sizes(batch=3, height=15, width=19, tokens=11)
"""Odd sides: only then does diffusers' UNet compute its upsampling sizes from its inputs, and such a graph is
correct for every size. No dimension is 1, which torch treats as a constant."""

# torch's warnings about its own internals, once per export.
_KNOWN_WARNINGS = (
    (FutureWarning, r".*isinstance\(treespec, LeafSpec\).*"),
    (UserWarning, r"# The axis name: .* will not be used.*"),
)


def check_exporter() -> None:
    """Raise before any work if the packages are missing."""
    try:
        import onnx  # noqa: F401, PLC0415 - an extra
        import onnxruntime  # noqa: F401, PLC0415
        import onnxscript  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtraError(str(error.name), "onnx", "exporting to ONNX") from None


def write_graph(part: Part, folder: Path) -> None:
    """Write `model.onnx` into the folder, and its weights beside it if they are too large for one file."""
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
            # Already traced: these are only names.
            dynamic_shapes={name: dict(axes) for name, axes in part.axes.items()},
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    # Source paths and lines of the export are useless to users of the file.
    model = ClearMetadataAndDocStringPass()(program.model).model
    tensors = [value.const_value for value in model.graph.initializers.values()]
    num_bytes = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    weights_file = WEIGHTS_FILE if num_bytes > MAX_FILE_BYTES else None
    onnx_ir.save(model, folder / FILE, external_data=weights_file)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages to its own developers."""
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
