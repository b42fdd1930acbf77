"""The training loop: steps, updates, averages, checkpoints, news. Knows nothing of what is trained.

Nothing in it draws random numbers or remembers a position in the data beyond one count, so a resumed run does
what an uninterrupted one would have done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from calotype.core.errors import CalotypeError
from calotype.spec.recipe import Recipe
from calotype.train.data.batch import Batch
from calotype.train.ema import Ema
from calotype.train.optimizer import build_optimizer, learning_rate, set_learning_rate
from calotype.train.processes import Process, compiled, exchange_after, shared, without_exchange
from calotype.train.subject import Subject


class NonFiniteError(CalotypeError):
    """The loss or the gradient stopped being a number; the weights were not touched by it."""


@dataclass(frozen=True)
class StepNews:
    """What is known after one update."""

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    samples: int
    """Seen so far, by all processes."""
    samples_per_s: float
    skipped: bool
    memory_bytes: int
    figures: Mapping[str, float]
    """What the subject has to say beside the loss, the mean over all processes."""


class Watcher(Protocol):
    """Told of every update; decides what to keep, draw or save."""

    def after_step(self, news: StepNews, loop: Loop) -> None: ...


class Loop:
    """Everything that moves during training, and how to save and restore it."""

    def __init__(self, subject: Subject, recipe: Recipe, process: Process) -> None:
        self.subject, self.recipe, self.process = subject, recipe, process
        self._parameters = subject.parameters()
        # The name order fixes the optimizer's order, so that a checkpoint fits whatever built the module.
        ordered = [self._parameters[name] for name in sorted(self._parameters)]
        self.optimizer = build_optimizer(ordered, recipe.optimizer)
        self.ema = Ema(ordered, recipe.ema) if recipe.model.use_ema else None
        self._exchanging = shared(subject.network, recipe, process)
        self.network = compiled(self._exchanging, recipe)
        scaled = recipe.model.precision == "fp16" and not recipe.model.low_precision_weights
        self.scaler = torch.amp.GradScaler(process.device.type, enabled=scaled)
        self.step, self.samples, self.skips = 0, 0, 0

    def run(self, batches: Iterator[Batch], watchers: Sequence[Watcher], stop: Callable[[], bool]) -> None:
        """Train to the recipe's last step, or until `stop` says so between two steps."""
        while self.step < self.recipe.trainer.max_steps and not stop():
            news = self.update(batches)
            for watcher in watchers:
                watcher.after_step(news, self)

    def update(self, batches: Iterator[Batch]) -> StepNews:
        """One update from `accumulation` micro-batches."""
        started = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._accumulate(batches)
        exchange_after(list(self._parameters.values()), self.recipe, self.process)
        self.scaler.unscale_(self.optimizer)
        norm = self._clipped()
        total, norm_value = self.process.mean(loss).item(), norm.item()
        finite = math.isfinite(total) and (math.isfinite(norm_value) or self.scaler.is_enabled())
        self.samples += self.recipe.model.global_batch_size
        self.step += 1
        # From the step alone: nothing to save, and a resumed run follows the recipe as it reads now.
        rate = learning_rate(self.recipe.optimizer, self.step, self.recipe.trainer.max_steps)
        if finite:
            self._apply(rate)
        else:
            self._leave_out(total, norm_value, rate)
        return StepNews(
            step=self.step,
            loss=total,
            gradient_norm=norm_value,
            learning_rate=rate,
            samples=self.samples,
            samples_per_s=self.recipe.model.global_batch_size / (time.perf_counter() - started),
            skipped=not finite,
            memory_bytes=_peak_memory(self.process.device),
            figures={name: self.process.mean(f).item() for name, f in self.subject.figures().items()},
        )

    def _accumulate(self, batches: Iterator[Batch]) -> Tensor:
        count, micro = self.recipe.accumulation, self.recipe.model.micro_batch_size
        total = torch.zeros((), device=self.process.device)
        for index in range(count):
            first = self.samples + (index * self.process.world_size + self.process.rank) * micro
            batch = next(batches).to(self.process.device, non_blocking=True)
            with without_exchange(self._exchanging, last=index == count - 1):
                loss = self.subject.loss(self.network, batch, range(first, first + micro)) / count
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _clipped(self) -> Tensor:
        limit = self.recipe.optimizer.gradient_clip or math.inf
        return nn.utils.clip_grad_norm_(self._parameters.values(), limit)

    def _apply(self, rate: float) -> None:
        set_learning_rate(self.optimizer, rate)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ema:
            self.ema.step(self.step)

    def _leave_out(self, loss: float, norm: float, rate: float) -> None:
        """Non-finite numbers never reach the weights: stop, or skip this update if the recipe allows it."""
        trainer = self.recipe.trainer
        self.skips += 1
        what = f"step {self.step}: loss {loss}, gradient norm {norm}, learning rate {rate:g}"
        if trainer.on_non_finite == "stop":
            raise NonFiniteError(
                f"{what}. The weights are those of step {self.step - 1}. Lower optimizer.learning_rate, "
                f"use bf16, or set trainer.on_non_finite=skip to leave out up to {trainer.most_skips} updates"
            )
        if self.skips > trainer.most_skips:
            rule = f"{self.skips} updates were left out, trainer.most_skips is {trainer.most_skips}"
            raise NonFiniteError(f"{what}. {rule}")
        self.scaler.update()

    def averaged(self) -> AbstractContextManager[None]:
        """The averaged weights in place of the live ones, where the run keeps any."""
        return self.ema.swapped_in() if self.ema else nullcontext()

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs."""
        return {
            "step": self.step,
            "samples": self.samples,
            "skips": self.skips,
            "parameters": {name: p.detach() for name, p in self._parameters.items()},
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": self.ema.state() if self.ema else None,
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        self.step, self.samples, self.skips = state["step"], state["samples"], state["skips"]
        for name, parameter in self._parameters.items():
            parameter.copy_(state["parameters"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        if self.ema and state["ema"]:
            self.ema.load_state(state["ema"])
        elif self.ema:
            self.ema.restart()


def _peak_memory(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
