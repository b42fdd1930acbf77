"""AdamW on many tensors at once, with the gradient scaled before it and an average taken after it.

One pass over memory carries 36 bytes for every weight; scaling (8), updating (28) and averaging (12) one
after the other carry 48.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import runs_triton_on


@dataclass(frozen=True)
class Updated:
    """Corresponding fp32 tensors: the same index in each list, the same memory layout."""

    weights: Sequence[Tensor]
    gradients: Sequence[Tensor]
    means: Sequence[Tensor]
    squares: Sequence[Tensor]
    averages: Sequence[Tensor]
    """Averages of the weights; empty without averaging."""


@dataclass(frozen=True)
class Settings:
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    eps: float
    share: float
    """Share of the new weights in the averages."""


@torch.no_grad()
def update(tensors: Updated, counts: Tensor, factor: Tensor, left_out: Tensor, settings: Settings) -> None:
    """One update in place, or none if `left_out` is true; the host does not synchronize on it.

    `counts` has each tensor's number of this update, `factor` multiplies the gradients.
    """
    counts = counts.double()
    rates = (settings.learning_rate / (1 - settings.betas[0] ** counts)).float()
    roots = (1 - settings.betas[1] ** counts).sqrt().float()
    if runs_triton_on(counts.device):
        from calotype.engine.kernels import adamw_triton  # noqa: PLC0415 - needs Triton

        adamw_triton.launch(tensors, rates, roots, factor, left_out, settings)
    else:
        plain(tensors, rates, roots, factor, left_out, settings)


def plain(
    tensors: Updated, rates: Tensor, roots: Tensor, factor: Tensor, left_out: Tensor, settings: Settings
) -> None:
    """The same with torch's own operations."""
    kept = 1 - settings.learning_rate * settings.weight_decay
    together = zip(tensors.weights, tensors.gradients, tensors.means, tensors.squares, strict=True)
    for index, (weight, gradient, mean, square) in enumerate(together):
        scaled = gradient * factor
        new_mean = mean.lerp(scaled, 1 - settings.betas[0])
        new_square = square.lerp(scaled.square(), 1 - settings.betas[1])
        step = rates[index] * new_mean / (new_square.sqrt() / roots[index] + settings.eps)
        new = {weight: weight * kept - step, mean: new_mean, square: new_square}
        if tensors.averages:
            average = tensors.averages[index]
            new[average] = average.lerp(new[weight], settings.share)
        for old, value in new.items():
            old.copy_(torch.where(left_out, old, value))
