"""Verifies that an ONNX file computes the same as torch, at sizes other than the traced one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calotype.core.errors import CalotypeError
from calotype.engine.onnx.wrappers import Part, Sizes

SIZES = (Sizes(batch=2, height=16, width=24, tokens=77), Sizes(batch=1, height=9, width=6, tokens=154))
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2}
"""Relative to the largest value of torch's output."""


class MismatchError(CalotypeError):
    """An exported file computes something else than the model."""


@dataclass(frozen=True)
class Difference:
    """The largest difference over all outputs and sizes."""

    absolute: float
    relative: float
    """Relative to the largest value of that output."""


def difference(part: Part, file: Path) -> Difference:
    """The difference between onnxruntime on the CPU and torch in fp32 with the same weights.

    Leaves the part in fp32.
    """
    import onnxruntime  # noqa: PLC0415 - an extra

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    draw = torch.Generator().manual_seed(1)
    examples = [part.example(sizes, draw) for sizes in SIZES]
    results = [session.run(list(part.outputs), _arrays(inputs)) for inputs in examples]
    part.float()
    worst = Difference(0.0, 0.0)
    for inputs, actual in zip(examples, results, strict=True):
        for expected, output in zip(_reference(part, inputs), actual, strict=True):
            worst = _worse(worst, expected.numpy(), output)
    return worst


def refuse_difference(name: str, found: Difference, dtype: torch.dtype) -> None:
    """Raise if the difference exceeds the tolerance."""
    # This form refuses NaN too.
    if not found.relative <= TOLERANCE[dtype]:
        raise MismatchError(
            f"{name}: onnxruntime differs from torch by {found.absolute:.3g}, {found.relative:.3g} of the "
            f"largest value; the limit is {TOLERANCE[dtype]:g}. Nothing was written; try another --dtype, "
            "or --no-check to skip this check"
        )


def _arrays(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


@torch.inference_mode()
def _reference(part: Part, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    full = {name: t.float() if t.is_floating_point() else t for name, t in inputs.items()}
    outputs = part(**full)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _worse(so_far: Difference, expected: np.ndarray, actual: np.ndarray) -> Difference:
    if expected.shape != actual.shape:
        return Difference(float("inf"), float("inf"))
    absolute = float(np.abs(expected - actual.astype(np.float32)).max())
    here = Difference(absolute, absolute / float(np.abs(expected).max()))
    return here if not here.relative <= so_far.relative else so_far
