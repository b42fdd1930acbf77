"""Sample images from fixed prompts during training, with the same engine that serves the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.engine.engine import Engine
from calotype.engine.prompt_parser import parse_prompt
from calotype.imaging.contact_sheet import Axis, contact_sheet
from calotype.spec.recipe import Recipe
from calotype.train.tasks.base import TrainTask
from calotype.train.tasks.textual_inversion import TextualInversionTask
from calotype.train.trainer import StepMetrics, Trainer


class SampleImages:
    """One sheet every `sample_every_steps` steps: each prompt with one seed, from averaged weights if any.

    After a stop signal it skips the sheet: the step still has to be saved, and the grace period may be short.
    """

    def __init__(
        self, recipe: Recipe, folder: Path, task: TrainTask, stop_requested: Callable[[], bool]
    ) -> None:
        self._part, self._folder, self._side = recipe.logging, folder, recipe.model.resolution
        self._stop_requested = stop_requested
        self._prompts = [_spell_prompt(prompt, task) for prompt in recipe.logging.sample_prompts]

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        # No rank can sample alone with sharded weights: all make the same image, and the first writes it.
        all_ranks = trainer.recipe.trainer.strategy == "fsdp"
        if step_metrics.step % self._part.sample_every_steps or not (trainer.process.is_first or all_ranks):
            return
        engine = Engine(trainer.subject.model)
        size: dict[str, Any] = {"width": self._side, "height": self._side} if self._side else {}
        row = []
        with trainer.averaged():
            for prompt in self._prompts:
                if self._stop_requested() and not all_ranks:
                    return
                output = engine.generate(prompt, steps=self._part.sample_steps, seed=0, **size)
                row.append(output.images[0])
        if not row or not trainer.process.is_first:
            return
        sheet = contact_sheet(
            [row], Axis("prompt", self._part.sample_prompts), None, f"step {step_metrics.step}"
        )
        with atomic_write(self._folder / f"step-{step_metrics.step:08d}.png") as file:
            sheet.save(file, "PNG")


def _spell_prompt(prompt: str, task: TrainTask) -> str:
    """The prompt in the form that the run's own tokenizers read."""
    if isinstance(task, TextualInversionTask):
        prompt = task.spelled(prompt)
    if any(piece.is_embedding for piece in parse_prompt(prompt)):
        # The embedding would be added to the encoders' tables, which the run may be training.
        rule = f"{prompt!r} uses an embedding from a file, which cannot be used in training; remove it"
        raise RequestError([Problem("logging.sample_prompts", rule)])
    return prompt
