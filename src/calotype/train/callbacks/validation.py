"""The loss on validation samples: the same samples with the same random numbers each time.

Validation does not change the training: the samples have their own data loader, the random numbers are a
function of a sample's position, and the live weights are restored exactly.
"""

from __future__ import annotations

import re

import torch

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.spec.recipe import Recipe
from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.dataloader import DataLoader, build_dataloader
from calotype.train.data.requirements import DataRequirements
from calotype.train.metrics import Metrics
from calotype.train.trainer import StepMetrics, Trainer

_SETTING_OF_DATA = re.compile(rf"(?<![\w./])data\.(?=(?:{'|'.join(DataConfig.model_fields)})\b)")


class Validation:
    """Adds validation losses to the run's metrics; every rank evaluates its share of the samples."""

    def __init__(
        self, recipe: Recipe, data: DataConfig, needs: DataRequirements, run_metrics: Metrics
    ) -> None:
        self._recipe, self._data, self._needs, self._run_metrics = recipe, data, needs, run_metrics

    def check(self, trainer: Trainer) -> None:
        """Refuse samples that cannot be opened at the start rather than a thousand steps later."""
        try:
            self._open(self._data.model_copy(update={"num_workers": 0}), trainer).close()
        # The code that opens data does not know that the recipe has two data sections.
        except RequestError as error:
            raise RequestError([_rename_field(problem) for problem in error.problems]) from error
        except NotFoundError as error:
            fix = "correct it, or set validation.data=null to train without validation"
            raise NotFoundError(f"validation.data: {error}; {fix}") from error

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        if self._due(step_metrics.step):
            self._run_metrics.validation_losses[step_metrics.step] = self.loss(trainer)

    def _due(self, step: int) -> bool:
        checkpoint = self._recipe.checkpoint
        saved_with_metric = checkpoint.metric != "train_loss" and step % checkpoint.every_steps == 0
        is_last = step == self._recipe.trainer.max_steps
        return saved_with_metric or is_last or step % self._recipe.validation.every_steps == 0

    @torch.no_grad()
    def loss(self, trainer: Trainer) -> float:
        """The mean over the samples, with the averaged weights if the run keeps an average."""
        micro, process = self._recipe.model.micro_batch_size, trainer.process
        num_batches = -(-self._recipe.validation.num_samples // (micro * process.world_size))
        total = torch.zeros((), device=process.device)
        with self._open(self._data, trainer) as dataloader, trainer.averaged():
            for index in range(num_batches):
                first = (index * process.world_size + process.rank) * micro
                # Positions before the run's first, so that no random numbers coincide with training.
                positions = [-1 - place for place in range(first, first + micro)]
                batch = next(dataloader).to(process.device, non_blocking=True)
                # The uncompiled network: the compiled one would be recompiled for use without gradients.
                total += trainer.subject.prepare(batch, positions)(trainer.subject.network)
        return process.mean(total / num_batches).item()

    def _open(self, data: DataConfig, trainer: Trainer) -> DataLoader:
        return build_dataloader(
            data,
            self._needs,
            rank=trainer.process.rank,
            world_size=trainer.process.world_size,
            micro_batch_size=self._recipe.model.micro_batch_size,
        )


def _rename_field(problem: Problem) -> Problem:
    field, message = (
        _SETTING_OF_DATA.sub("validation.data.", text) for text in (problem.field, problem.message)
    )
    return Problem(field, message, problem.value)
