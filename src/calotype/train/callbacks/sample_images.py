"""Pictures from fixed prompts while training goes on, made by the engine that will serve the model."""

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
    """One sheet every so many steps: every prompt on the same seed, from the averaged weights if any.

    Told to stop, it leaves the sheet: the step still has to be saved, and who tells may not wait for long.
    """

    def __init__(
        self, recipe: Recipe, folder: Path, task: TrainTask, told_to_stop: Callable[[], bool]
    ) -> None:
        self._part, self._folder, self._side = recipe.logging, folder, recipe.model.resolution
        self._told_to_stop = told_to_stop
        self._prompts = [_spelled(prompt, task) for prompt in recipe.logging.sample_prompts]

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        # With split weights no process can make a picture alone: all make the same, and the first keeps it.
        together = trainer.recipe.trainer.strategy == "fsdp"
        if step_metrics.step % self._part.sample_every_steps or not (trainer.process.is_first or together):
            return
        engine = Engine(trainer.subject.model)
        size: dict[str, Any] = {"width": self._side, "height": self._side} if self._side else {}
        row = []
        with trainer.averaged():
            for prompt in self._prompts:
                if self._told_to_stop() and not together:
                    return
                made = engine.generate(prompt, steps=self._part.sample_steps, seed=0, **size)
                row.append(made.images[0])
        if not row or not trainer.process.is_first:
            return
        sheet = contact_sheet([row], Axis("prompt", self._part.sample_prompts), None, f"step {step_metrics.step}")
        with atomic_write(self._folder / f"step-{step_metrics.step:08d}.png") as file:
            sheet.save(file, "PNG")


def _spelled(prompt: str, task: TrainTask) -> str:
    """The prompt as the run's own tokenizers read it."""
    if isinstance(task, TextualInversionTask):
        prompt = task.spelled(prompt)
    if any(piece.is_embedding for piece in parse_prompt(prompt)):
        # It would join the encoders' tables, which the run may be training.
        rule = f"{prompt!r} asks for a word from a file, which cannot be used while training; leave it out"
        raise RequestError([Problem("logging.sample_prompts", rule)])
    return prompt
