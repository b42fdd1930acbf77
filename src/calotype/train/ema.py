"""Exponential moving average (EMA) of weights, on the device or on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from calotype.spec.recipe_sections import EmaConfig


class Ema:
    """Averages of a list of parameters, always in fp32."""

    def __init__(self, parameters: Sequence[Tensor], part: EmaConfig) -> None:
        self._parameters = list(parameters)
        self._part = part
        self.num_updates = 0
        device = None if part.device == "same" else torch.device("cpu")
        self.averages = [
            p.detach().to(device or p.device, torch.float32, copy=True) for p in self._parameters
        ]

    @torch.no_grad()
    def step(self, step: int) -> None:
        """Update the averages after update `step` (from 1)."""
        share = self.share(step)
        if not share:
            return
        current = [
            p.detach().to(a.device, torch.float32)
            for p, a in zip(self._parameters, self.averages, strict=True)
        ]
        torch._foreach_lerp_(self.averages, current, share)
        self.count(step)

    def share(self, step: int) -> float:
        """The weight of the current parameters in the average after that step; 0 if it is not updated."""
        every = self._part.every_steps
        if step % every:
            return 0.0
        decay = self._part.decay
        if self._part.warmup:
            steps = (self.num_updates + 1) * every
            decay = min(decay, (1 + steps) / (10 + steps))
        # One update for several steps: the average decays as much as it would have step by step.
        return 1 - decay**every

    def count(self, step: int) -> None:
        """Record that the averages were updated elsewhere for that step."""
        self.num_updates += step % self._part.every_steps == 0

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Use the averages in place of the parameters, for sampling; the parameters are restored exactly."""
        originals = [p.detach().clone() for p in self._parameters]
        try:
            self._copy(self.averages)
            yield
        finally:
            self._copy(originals)

    @torch.no_grad()
    def _copy(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def restart(self) -> None:
        """Restart the averages from the current parameters."""
        self.num_updates = 0
        for average, parameter in zip(self.averages, self._parameters, strict=True):
            average.copy_(parameter)

    def state(self) -> dict[str, object]:
        return {"averages": self.averages, "num_updates": self.num_updates}

    def load_state(self, state: dict[str, object]) -> None:
        averages, updates = state["averages"], state["num_updates"]
        assert isinstance(averages, list)
        assert isinstance(updates, int)
        for average, saved in zip(self.averages, averages, strict=True):
            average.copy_(saved)
        self.num_updates = updates
