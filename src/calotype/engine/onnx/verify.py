"""Whether an ONNX file computes what torch does, at sizes other than the one it was traced at.

Knows nothing of how the file came about.
"""

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
"""Of the largest number that torch gives."""


class MismatchError(CalotypeError):
    """A file that was written but does not compute what the model does."""


@dataclass(frozen=True)
class Difference:
    """The worst of all outputs at all sizes."""

    absolute: float
    relative: float
    """To the largest number of the output it was found in."""


def difference(part: Part, file: Path) -> Difference:
    """How far onnxruntime on the CPU is from torch in full precision with the same weights.

    Leaves the part in full precision.
    """
    import onnxruntime  # noqa: PLC0415 - an extra

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    draw = torch.Generator().manual_seed(1)
    examples = [part.example(sizes, draw) for sizes in SIZES]
    given = [session.run(list(part.outputs), _arrays(inputs)) for inputs in examples]
    part.float()
    worst = Difference(0.0, 0.0)
    for inputs, theirs in zip(examples, given, strict=True):
        for ours, their in zip(_reference(part, inputs), theirs, strict=True):
            worst = _worse(worst, ours.numpy(), their)
    return worst


def refuse_difference(name: str, found: Difference, dtype: torch.dtype) -> None:
    """Raise if that is too far."""
    # Written so that NaN is refused too.
    if not found.relative <= TOLERANCE[dtype]:
        raise MismatchError(
            f"{name}: onnxruntime differs from torch by {found.absolute:.3g}, {found.relative:.3g} of the "
            f"largest number; the limit is {TOLERANCE[dtype]:g}. Nothing was written; try another --dtype, "
            "or --no-check if you know better"
        )


def _arrays(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


@torch.inference_mode()
def _reference(part: Part, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    full = {name: t.float() if t.is_floating_point() else t for name, t in inputs.items()}
    outputs = part(**full)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _worse(so_far: Difference, ours: np.ndarray, theirs: np.ndarray) -> Difference:
    if ours.shape != theirs.shape:
        return Difference(float("inf"), float("inf"))
    absolute = float(np.abs(ours - theirs.astype(np.float32)).max())
    here = Difference(absolute, absolute / float(np.abs(ours).max()))
    return here if not here.relative <= so_far.relative else so_far
