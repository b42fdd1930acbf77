"""Clipping, AdamW and the running average in one pass over the weights. Knows nothing of losses.

Everything that is saved stays where torch's optimizer and the average keep it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calotype.engine.kernels.adamw import Settings, Updated, update
from calotype.train.ema import Ema

_MOMENTS = ("exp_avg", "exp_avg_sq")


def clip_factor(norm: Tensor, limit: float) -> Tensor:
    """What gradients of that norm are multiplied by; torch's own rule."""
    return (limit / (norm + 1e-6)).clamp(max=1.0)


class FusedOptimizer:
    """One update of an AdamW with a single group of parameters, and of their averages."""

    def __init__(self, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
        (self._group,) = optimizer.param_groups
        self._optimizer, self._ema = optimizer, ema

    @torch.no_grad()
    def step(self, step: int, norm: Tensor, limit: float, left_out: Tensor) -> None:
        """Update number `step` (from 1), or none of it if `left_out` turns out true."""
        share = self._ema.share(step) if self._ema else 0.0
        averages = self._ema.averages if self._ema and share else []
        parameters = self._group["params"]
        moved = [index for index, parameter in enumerate(parameters) if parameter.grad is not None]
        states = [self._state(parameters[index]) for index in moved]
        counts = [state["step"] for state in states]
        torch._foreach_add_(counts, (~left_out).float())
        tensors = Updated(
            weights=[parameters[index] for index in moved],
            gradients=[_laid_out_like(parameters[index].grad, parameters[index]) for index in moved],
            means=[state["exp_avg"] for state in states],
            squares=[state["exp_avg_sq"] for state in states],
            averages=[averages[index] for index in moved] if averages else [],
        )
        group = self._group
        settings = Settings(group["lr"], group["weight_decay"], group["betas"], group["eps"], share)
        update(tensors, torch.stack(counts), clip_factor(norm, limit), left_out, settings)

    def _state(self, parameter: nn.Parameter) -> dict[str, Any]:
        """As torch's fused AdamW begins it; as it was saved, but laid out like the parameter."""
        state: dict[str, Any] = self._optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state |= {name: torch.zeros_like(parameter) for name in _MOMENTS}
        for name in _MOMENTS:
            state[name] = _laid_out_like(state[name], parameter)
        return state


def _laid_out_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    return tensor if tensor.stride() == parameter.stride() else torch.empty_like(parameter).copy_(tensor)
