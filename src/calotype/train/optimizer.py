"""The optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from calotype.core.extras import MissingExtraError
from calotype.spec.recipe_sections import OptimizerConfig


def build_optimizer(parameters: Sequence[nn.Parameter], part: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW (fused or 8-bit) as the recipe says."""
    settings = {
        "lr": part.learning_rate,
        "betas": part.betas,
        "eps": part.eps,
        "weight_decay": part.weight_decay,
    }
    if part.name == "adamw8bit":
        return _eight_bit(parameters, settings)
    return torch.optim.AdamW(parameters, **settings, fused=part.fused)  # type: ignore[arg-type]  # a dict of mixed types


def _eight_bit(parameters: Sequence[nn.Parameter], settings: dict[str, object]) -> torch.optim.Optimizer:
    try:
        from torchao.optim import AdamW8bit  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("torchao", "train", "optimizer.name=adamw8bit") from None
    return AdamW8bit(parameters, **settings)


def learning_rate(part: OptimizerConfig, step: int, max_steps: int) -> float:
    """The rate of update `step` (from 1): a linear warm-up, then constant, linear or cosine."""
    done = step - 1
    if done < part.warmup_steps:
        return part.learning_rate * step / part.warmup_steps
    if part.schedule == "constant":
        return part.learning_rate
    progress = min(1.0, (done - part.warmup_steps) / max(1, max_steps - 1 - part.warmup_steps))
    falling = 1 - progress if part.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return part.learning_rate * (part.final_share + (1 - part.final_share) * falling)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next update."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            # torchao keeps the rate in a tensor, which its compiled code reads in place.
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def can_decide_itself(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `step_unless` works with it: torch's fused kernels check a flag on the device first."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    fused = isinstance(optimizer, torch.optim.AdamW) and bool(optimizer.defaults["fused"])
    return fused and not any(isinstance(p, DTensor) for p in parameters)


def step_unless(optimizer: torch.optim.Optimizer, flag: Tensor) -> None:
    """Update the parameters unless `flag` is true, without the host waiting for the flag.

    It uses the same attributes as torch's gradient scaler.
    """
    optimizer.found_inf = flag.float()  # type: ignore[attr-defined]
    optimizer.grad_scale = None  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined]
