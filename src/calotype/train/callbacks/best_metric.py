"""The metric by which checkpoints are ranked; lower is better."""

from __future__ import annotations

from typing import Any

from calotype.spec.recipe import Recipe
from calotype.train.metrics import Metrics
from calotype.train.trainer import StepMetrics, Trainer

WINDOW = 200
"""The approximate number of steps in the running mean of the loss; single losses are too noisy."""


class BestMetric:
    """The validation loss, or a running mean of the training loss that continues in a resumed run."""

    def __init__(self, recipe: Recipe, run_metrics: Metrics) -> None:
        validated = recipe.validation.data is not None
        self._validates = validated and recipe.checkpoint.metric != "train_loss"
        self._run_metrics = run_metrics
        self._mean, self._count = 0.0, 0

    @property
    def metric_name(self) -> str:
        """The name of `metric`, as in `checkpoint.metric`."""
        return "validation_loss" if self._validates else "train_loss"

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del trainer
        if not step_metrics.skipped:
            self._count += 1
            # A plain mean until there are enough steps, so that the first loss weighs no more than others.
            self._mean += (step_metrics.loss - self._mean) / min(self._count, WINDOW)

    def metric(self, step: int) -> float | None:
        """None if the step was not validated: after a stop signal there is no time for validation."""
        if self._validates:
            return self._run_metrics.validation_losses.get(step)
        return self._mean if self._count else None

    def state(self) -> dict[str, Any]:
        return {"mean": self._mean, "count": self._count}

    def load_state(self, state: dict[str, Any]) -> None:
        self._mean, self._count = state["mean"], state["count"]
