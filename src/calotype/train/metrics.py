"""What is worth keeping of a step: the loop's news, and what others found out about it. Writes nothing."""

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
    """Gathers the numbers of each step for all who watch."""

    most_samples_per_s: float | None = None
    """At the devices' ceiling, all of them together; None where that is not known."""
    validation_losses: dict[int, float] = field(default_factory=dict)
    """By step, of this process."""
    every_steps: int = 1
    """How often those who keep numbers want them."""

    def wanted(self, step_metrics: StepMetrics) -> bool:
        """Whether a step's numbers should be kept; what is rare always is."""
        rare = step_metrics.skipped or step_metrics.step in self.validation_losses
        return rare or step_metrics.step % self.every_steps == 0

    def of(self, step_metrics: StepMetrics) -> dict[str, float]:
        """By name; figures of the subject, `mfu` and `validation_loss` only where there are any."""
        values = asdict(step_metrics)
        values |= values.pop("figures")
        if self.most_samples_per_s is not None:
            values["mfu"] = step_metrics.samples_per_s / self.most_samples_per_s
        if step_metrics.step in self.validation_losses:
            values["validation_loss"] = self.validation_losses[step_metrics.step]
        return values


def most_samples_per_s(recipe: Recipe, architecture: Architecture, device: torch.device) -> float | None:
    """What would be an MFU of 1; None without a GPU, and for work that nobody counted."""
    tflop = training_tflop(architecture, recipe)
    if tflop is None or device.type != "cuda":
        return None
    ceiling = recipe.trainer.ceiling_tflops or measured_peak(device, DTYPES[recipe.model.precision])
    return None if ceiling is None else ceiling * recipe.num_processes / tflop
