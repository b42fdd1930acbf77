"""Gradient clipping, AdamW and the EMA update fused into one pass over the weights.

All saved state stays in torch's optimizer and in the EMA.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calotype.engine.kernels.adamw import Settings, Updated, update
from calotype.train.ema import Ema

_MOMENTS = ("exp_avg", "exp_avg_sq")


def clip_factor(norm: Tensor, limit: float) -> Tensor:
    """The factor that clips gradients of that norm; the same formula as torch's."""
    return (limit / (norm + 1e-6)).clamp(max=1.0)


class FusedOptimizer:
    """One update of an AdamW with a single parameter group, and of the averages of its parameters."""

    def __init__(self, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
        (self._group,) = optimizer.param_groups
        self._optimizer, self._ema = optimizer, ema

    @torch.no_grad()
    def step(self, step: int, norm: Tensor, limit: float, left_out: Tensor) -> None:
        """Apply update `step` (from 1), unless `left_out` is true on the device."""
        share = self._ema.share(step) if self._ema else 0.0
        averages = self._ema.averages if self._ema and share else []
        parameters = self._group["params"]
        updated = [index for index, parameter in enumerate(parameters) if parameter.grad is not None]
        states = [self._state(parameters[index]) for index in updated]
        counts = [state["step"] for state in states]
        torch._foreach_add_(counts, (~left_out).float())
        tensors = Updated(
            weights=[parameters[index] for index in updated],
            gradients=[_with_layout_of(parameters[index].grad, parameters[index]) for index in updated],
            means=[state["exp_avg"] for state in states],
            squares=[state["exp_avg_sq"] for state in states],
            averages=[averages[index] for index in updated] if averages else [],
        )
        group = self._group
        settings = Settings(group["lr"], group["weight_decay"], group["betas"], group["eps"], share)
        update(tensors, torch.stack(counts), clip_factor(norm, limit), left_out, settings)

    def _state(self, parameter: nn.Parameter) -> dict[str, Any]:
        """The parameter's state, initialized as in torch's fused AdamW, in the parameter's memory layout."""
        state: dict[str, Any] = self._optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state |= {name: torch.zeros_like(parameter) for name in _MOMENTS}
        for name in _MOMENTS:
            state[name] = _with_layout_of(state[name], parameter)
        return state


def _with_layout_of(tensor: Tensor, parameter: Tensor) -> Tensor:
    return tensor if tensor.stride() == parameter.stride() else torch.empty_like(parameter).copy_(tensor)
