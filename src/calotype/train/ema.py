"""A running average of weights, kept on the device or on the CPU. Knows only tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from calotype.spec.recipe_sections import EmaConfig


class Ema:
    """Averages of a list of parameters, in fp32 whatever the parameters are in."""

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
        """Take the parameters into the average after update number `step` (from 1)."""
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
        """Of the parameters in the average after that update; 0 where they are not taken in."""
        every = self._part.every_steps
        if step % every:
            return 0.0
        decay = self._part.decay
        if self._part.warmup:
            steps = (self.num_updates + 1) * every
            decay = min(decay, (1 + steps) / (10 + steps))
        # Several steps at once: the average forgets as much as it would have, one by one.
        return 1 - decay**every

    def count(self, step: int) -> None:
        """Told that the parameters were taken in after that update."""
        self.num_updates += step % self._part.every_steps == 0

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The averages in the parameters' place, for sampling; the parameters come back to the bit."""
        kept = [p.detach().clone() for p in self._parameters]
        try:
            self._copy(self.averages)
            yield
        finally:
            self._copy(kept)

    @torch.no_grad()
    def _copy(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def restart(self) -> None:
        """Begin again from the parameters as they are now."""
        self.num_updates = 0
        for average, parameter in zip(self.averages, self._parameters, strict=True):
            average.copy_(parameter)

    def state(self) -> dict[str, object]:
        return {"averages": self.averages, "num_updates": self.num_updates}

    def load_state(self, state: dict[str, object]) -> None:
        averages, updates = state["averages"], state["num_updates"]
        assert isinstance(averages, list)
        assert isinstance(updates, int)
        for mine, saved in zip(self.averages, averages, strict=True):
            mine.copy_(saved)
        self.num_updates = updates
