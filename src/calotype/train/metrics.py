"""The metrics of a step: those of the trainer, plus MFU and validation loss."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import torch

from calotype.models.architecture import Architecture
from calotype.spec.recipe import Recipe
from calotype.train.flops import training_tflop
from calotype.train.peak_flops import measured_peak
from calotype.train.tasks.base import DTYPES
from calotype.train.trainer import StepMetrics


@dataclass
class Metrics:
    """Collects the metrics of each step for the callbacks."""

    most_samples_per_s: float | None = None
    """Throughput of all devices at peak FLOPS; None if the peak is not known."""
    validation_losses: dict[int, float] = field(default_factory=dict)
    """By step, of this rank."""
    every_steps: int = 1
    """The interval in steps at which loggers record metrics."""

    def wanted(self, step_metrics: StepMetrics) -> bool:
        """Whether a step's metrics are recorded; skipped and validated steps always are."""
        always_logged = step_metrics.skipped or step_metrics.step in self.validation_losses
        return always_logged or step_metrics.step % self.every_steps == 0

    def of(self, step_metrics: StepMetrics) -> dict[str, float]:
        """Metrics by name; the task's own metrics, `mfu` and `validation_loss` only if they exist."""
        values = asdict(step_metrics)
        values |= values.pop("task_metrics")
        if self.most_samples_per_s is not None:
            values["mfu"] = step_metrics.samples_per_s / self.most_samples_per_s
        if step_metrics.step in self.validation_losses:
            values["validation_loss"] = self.validation_losses[step_metrics.step]
        return values


def most_samples_per_s(recipe: Recipe, architecture: Architecture, device: torch.device) -> float | None:
    """The throughput at an MFU of 1; None without a GPU and for work whose FLOPs are unknown."""
    tflop = training_tflop(architecture, recipe)
    if tflop is None or device.type != "cuda":
        return None
    ceiling = recipe.trainer.ceiling_tflops or measured_peak(device, DTYPES[recipe.model.precision])
    return None if ceiling is None else ceiling * recipe.num_processes / tflop
