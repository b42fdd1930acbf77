"""The loss on samples that are not trained on, the same samples with the same draws each time.

Nothing of the training is touched: the samples have a feed of their own, the draws are a function of a
sample's place, and the live weights come back to the bit. Knows nothing of what the loss is for.
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
    """Fills in the readings' validation losses; every process takes its share of the samples."""

    def __init__(self, recipe: Recipe, data: DataConfig, needs: DataRequirements, run_metrics: Metrics) -> None:
        self._recipe, self._data, self._needs, self._run_metrics = recipe, data, needs, run_metrics

    def check(self, trainer: Trainer) -> None:
        """Refuse samples that cannot be opened now, not after a thousand steps."""
        try:
            self._open(self._data.model_copy(update={"num_workers": 0}), trainer).close()
        # What opens data does not know that there are two of them.
        except RequestError as error:
            raise RequestError([_of_validation(problem) for problem in error.problems]) from error
        except NotFoundError as error:
            fix = "set what is wrong there, or validation.data=null to go without"
            raise NotFoundError(f"validation.data: {error}; {fix}") from error

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        if self._due(step_metrics.step):
            self._run_metrics.validation_losses[step_metrics.step] = self.loss(trainer)

    def _due(self, step: int) -> bool:
        checkpoint = self._recipe.checkpoint
        judged = checkpoint.metric != "train_loss" and step % checkpoint.every_steps == 0
        last = step == self._recipe.trainer.max_steps
        return judged or last or step % self._recipe.validation.every_steps == 0

    @torch.no_grad()
    def loss(self, trainer: Trainer) -> float:
        """The mean over the samples, with the averaged weights if the run keeps any."""
        micro, process = self._recipe.model.micro_batch_size, trainer.process
        num_batches = -(-self._recipe.validation.num_samples // (micro * process.world_size))
        total = torch.zeros((), device=process.device)
        with self._open(self._data, trainer) as dataloader, trainer.averaged():
            for index in range(num_batches):
                first = (index * process.world_size + process.rank) * micro
                # Places before the run's first, so that no draw is also one of training.
                places = [-1 - place for place in range(first, first + micro)]
                batch = next(dataloader).to(process.device, non_blocking=True)
                # Not the compiled network: it would be compiled again for use without gradients.
                total += trainer.subject.prepare(batch, places)(trainer.subject.network)
        return process.mean(total / num_batches).item()

    def _open(self, data: DataConfig, trainer: Trainer) -> DataLoader:
        return build_dataloader(
            data,
            self._needs,
            rank=trainer.process.rank,
            world_size=trainer.process.world_size,
            micro_batch_size=self._recipe.model.micro_batch_size,
        )


def _of_validation(problem: Problem) -> Problem:
    field, message = (
        _SETTING_OF_DATA.sub("validation.data.", text) for text in (problem.field, problem.message)
    )
    return Problem(field, message, problem.value)
