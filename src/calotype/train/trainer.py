"""The training loop: gradient accumulation, optimizer updates, EMA, and the state that a checkpoint holds.

The trainer draws no random numbers and keeps no position in the data except one count, so a resumed run does
exactly what an uninterrupted run does.
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
from torch.distributed.tensor import DTensor

from calotype.core.errors import CalotypeError
from calotype.spec.recipe import Recipe
from calotype.train.async_readback import Readback
from calotype.train.compile import compiled
from calotype.train.cuda_stream import SideStream
from calotype.train.data.types import Batch
from calotype.train.distributed.fsdp import joined_part, own_part, split, whole
from calotype.train.distributed.process_group import (
    Rank,
    no_gradient_sync,
    sync_gradients_after,
    wrap_ddp_or_fsdp,
)
from calotype.train.ema import Ema
from calotype.train.fused_optimizer import FusedOptimizer
from calotype.train.optimizer import (
    build_optimizer,
    can_decide_itself,
    learning_rate,
    set_learning_rate,
    step_unless,
)
from calotype.train.tasks.base import LossFn, TrainTask

_MAX_NAMES_SHOWN = 8


class NonFiniteError(CalotypeError):
    """The loss or the gradient norm is not finite; the trainer's state is that of the step before."""


@dataclass(frozen=True)
class StepMetrics:
    """The metrics of one update."""

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    samples: int
    """Seen so far, over all ranks."""
    samples_per_s: float
    skipped: bool
    memory_bytes: int
    task_metrics: Mapping[str, float]
    """The task's own metrics besides the loss, averaged over all ranks."""


class Callback(Protocol):
    """Runs after every update; logs, saves or samples."""

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None: ...


class Trainer:
    """All state that changes during training, with methods to save and restore it."""

    def __init__(self, task: TrainTask, recipe: Recipe, process: Rank) -> None:
        self.subject, self.recipe, self.process = task, recipe, process
        # This comes first: sharding the weights replaces the parameters.
        self._wrapped_network = wrap_ddp_or_fsdp(task.network, recipe, process)
        self._parameters = task.parameters()
        ordered = self._ordered()
        self.optimizer = build_optimizer(ordered, recipe.optimizer)
        self.ema = Ema([own_part(p) for p in ordered], recipe.ema) if recipe.model.use_ema else None
        self.network = compiled(self._wrapped_network, recipe)
        scaled = recipe.model.precision == "fp16" and not recipe.model.low_precision_weights
        self.scaler = torch.amp.GradScaler(process.device.type, enabled=scaled)
        self._skips_on_device = can_decide_itself(self.optimizer) and not scaled
        self._one_pass = FusedOptimizer(self.optimizer, self.ema) if recipe.optimizer.one_pass else None
        self.step, self.samples, self.skips = 0, 0, 0
        self.is_consistent = True
        """Whether all state belongs to `step`: a step that fails while this is true has changed nothing."""
        self._prefetched: LossFn | None = None
        self._side_stream = SideStream(process.device, wanted=recipe.model.encode_aside)
        self._sample_names: list[str] = []
        # A replayed backward pass writes to the same addresses again, so accumulated gradients need their
        # own buffers. That costs one kernel for each gradient; a single micro-batch accumulates nothing.
        self._keeps_grad_buffers = recipe.model.cuda_graphs and recipe.accumulation > 1
        if self._keeps_grad_buffers:
            for parameter in ordered:
                parameter.grad = torch.zeros_like(parameter)

    def run(self, batches: Iterator[Batch], callbacks: Sequence[Callback], stop: Callable[[], bool]) -> None:
        """Train to the recipe's last step, or until `stop` returns true between two steps."""
        while self.step < self.recipe.trainer.max_steps and not stop():
            step_metrics = self.train_step(batches)
            for callback in callbacks:
                callback.after_step(step_metrics, self)

    def train_step(self, batches: Iterator[Batch]) -> StepMetrics:
        """One update from `accumulation` micro-batches."""
        started = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=not self._keeps_grad_buffers)
        loss = self._accumulate(batches)
        self._side_stream.fork()
        names, self._sample_names = self._sample_names, []
        sync_gradients_after(list(self._parameters.values()), self.recipe, self.process)
        self.scaler.unscale_(self.optimizer)
        task_metrics = self.subject.metrics()
        means = [self.process.mean(number) for number in (loss, *task_metrics.values())]
        norm = self._gradient_norm()
        if not self._one_pass:
            nn.utils.clip_grads_with_norm_(self._parameters.values(), self._clip_norm, norm)
        numbers = torch.stack([means[0], norm.to(loss), *means[1:]])
        self.is_consistent = False
        self.samples += self.recipe.model.global_batch_size
        self.step += 1
        # The rate depends on the step alone: nothing is saved, and a resumed run follows the current recipe.
        rate = learning_rate(self.recipe.optimizer, self.step, self.recipe.trainer.max_steps)
        set_learning_rate(self.optimizer, rate)
        # This is the only place in a step where the host waits for the device. An optimizer that can skip the
        # update on the device is launched first, and the next micro-batch is prepared, so that the device has
        # work while the host reads the numbers.
        readback = Readback(numbers)
        skip_update = ~numbers[:2].isfinite().all()
        if self._one_pass:
            self._one_pass.step(self.step, norm, self._clip_norm, skip_update)
        elif self._skips_on_device:
            step_unless(self.optimizer, skip_update)
        if self.step < self.recipe.trainer.max_steps:
            self._prefetched = self._prefetch(batches)
        total, size, *task_values = readback.wait()
        finite = math.isfinite(total) and math.isfinite(size)
        if not finite and not (math.isfinite(total) and self._scale_can_fall()):
            self._handle_non_finite(f"loss {total}, gradient norm {size}, learning rate {rate:g}", names)
        elif not self._skips_on_device:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        if finite and self.ema:
            (self.ema.count if self._one_pass else self.ema.step)(self.step)
        self.is_consistent = True
        return StepMetrics(
            step=self.step,
            loss=total,
            gradient_norm=size,
            learning_rate=rate,
            samples=self.samples,
            samples_per_s=self.recipe.model.global_batch_size / (time.perf_counter() - started),
            skipped=not finite,
            memory_bytes=_peak_memory(self.process.device),
            task_metrics=dict(zip(task_metrics, task_values, strict=True)),
        )

    def _accumulate(self, batches: Iterator[Batch]) -> Tensor:
        count = self.recipe.accumulation
        total = torch.zeros((), device=self.process.device)
        self._side_stream.join()
        for index in range(count):
            prepared, self._prefetched = self._prefetched or self._prepare_batch(batches, index), None
            if self.recipe.model.cuda_graphs:
                torch.compiler.cudagraph_mark_step_begin()
            with no_gradient_sync(self._wrapped_network, last=index == count - 1):
                loss = prepared(self.network) / count
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _prepare_batch(self, batches: Iterator[Batch], index: int) -> LossFn:
        """Prepare micro-batch `index` of the next update."""
        micro = self.recipe.model.micro_batch_size
        first = self.samples + (index * self.process.world_size + self.process.rank) * micro
        batch = next(batches).to(self.process.device, non_blocking=True)
        self._sample_names += batch.keys
        return self.subject.prepare(batch, range(first, first + micro))

    def _prefetch(self, batches: Iterator[Batch]) -> LossFn:
        """Prepare the first micro-batch of the next update; an error is raised when that update uses it."""
        try:
            with self._side_stream.use():
                return self._prepare_batch(batches, 0)
        except Exception as error:
            failure = error

        def failed(_network: nn.Module) -> Tensor:
            raise failure

        return failed

    @property
    def _clip_norm(self) -> float:
        """The limit of the gradient norm."""
        return self.recipe.optimizer.gradient_clip or math.inf

    def _gradient_norm(self) -> Tensor:
        norm = nn.utils.get_total_norm([p.grad for p in self._parameters.values() if p.grad is not None])
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _scale_can_fall(self) -> bool:
        """Whether gradients may overflow only because of the loss scale, which the scaler then halves.

        Above a scale of one the scaler can still halve it. Below, it would halve for ever and learn nothing.
        """
        return self.scaler.is_enabled() and self.scaler.get_scale() > 1

    def _handle_non_finite(self, numbers: str, names: Sequence[str]) -> None:
        """Keep non-finite numbers out of the weights: stop, or skip this update if the recipe allows it."""
        trainer, step = self.recipe.trainer, self.step
        if trainer.on_non_finite == "skip" and self.skips < trainer.most_skips:
            self.skips += 1
            return
        # A checkpoint saved now resumes with this step, perhaps with other settings.
        self.step, self.samples = step - 1, self.samples - self.recipe.model.global_batch_size
        self.is_consistent = True
        shown = ", ".join(names[:_MAX_NAMES_SHOWN]) + (", …" if len(names) > _MAX_NAMES_SHOWN else "")
        what = f"step {step}: {numbers}" + (f", samples {shown}" if names else "")
        if trainer.on_non_finite == "skip":
            why = f"{self.skips} updates were skipped before, trainer.most_skips is {trainer.most_skips}"
        else:
            why = f"Set trainer.on_non_finite=skip to skip up to {trainer.most_skips} updates"
        fix = "lower optimizer.learning_rate"
        if self.recipe.model.precision == "fp16":
            fix += ", or use model.precision=bf16"
        raise NonFiniteError(f"{what}. The weights are those of step {step - 1}. {why}, or {fix}")

    def least_bytes(self) -> int:
        """The lower bound of a checkpoint's size, valid also before the optimizer has any moments."""
        numbers = sum(p.numel() for p in self._parameters.values())
        weights = sum(p.numel() * p.element_size() for p in self._parameters.values())
        moments = 2 * numbers if self.recipe.optimizer.name == "adamw8bit" else 2 * weights
        return weights + moments + (4 * numbers if self.ema else 0)

    def averaged(self) -> AbstractContextManager[None]:
        """Use the averaged weights in place of the live ones, if the run keeps an average."""
        return self.ema.swapped_in() if self.ema else nullcontext()

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs. All ranks call it; the first one gets sharded weights whole.

        The state does not depend on the strategy, so a run can resume with another one.
        """
        first = self.process.is_first
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {
            index: {name: whole(v, first) if isinstance(v, Tensor) else v for name, v in values.items()}
            for index, values in optimizer["state"].items()
        }
        return {
            "step": self.step,
            "samples": self.samples,
            "skips": self.skips,
            "parameters": {name: whole(p.detach(), first) for name, p in self._parameters.items()},
            "optimizer": optimizer,
            "scaler": self.scaler.state_dict(),
            "ema": self._whole_averages() if self.ema else None,
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        self.step, self.samples, self.skips = state["step"], state["samples"], state["skips"]
        self._prefetched, self._sample_names = None, []
        for name, parameter in self._parameters.items():
            parameter.copy_(split(state["parameters"][name], parameter))
        self._load_optimizer(state["optimizer"])
        if state["scaler"]:
            # The state is empty if the run has not scaled the loss so far.
            self.scaler.load_state_dict(state["scaler"])
        if self.ema and state["ema"]:
            pairs = zip(state["ema"]["averages"], self._ordered(), strict=True)
            self.ema.load_state({**state["ema"], "averages": [own_part(split(a, p)) for a, p in pairs]})
        elif self.ema:
            self.ema.restart()

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        ordered = self._ordered()
        moments = {
            index: {
                # Scalars of the whole parameter, such as its update count, are the same on every rank.
                name: split(v, ordered[index]) if isinstance(v, Tensor) and v.ndim else v
                for name, v in values.items()
            }
            for index, values in state["state"].items()
        }
        # Only the moments come from the checkpoint; the hyperparameters come from the current recipe.
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def _whole_averages(self) -> dict[str, Any]:
        assert self.ema is not None
        pairs = zip(self.ema.averages, self._ordered(), strict=True)
        averages = [whole(joined_part(a, p), self.process.is_first) for a, p in pairs]
        return {**self.ema.state(), "averages": averages}

    def _ordered(self) -> list[nn.Parameter]:
        """Parameters by name, so that the optimizer's order does not depend on how the module was built."""
        return [self._parameters[name] for name in sorted(self._parameters)]


def _peak_memory(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
