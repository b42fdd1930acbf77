"""Sheets of a few images of the dataset, before and after the autoencoder in training."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from calotype.core.paths import atomic_write
from calotype.engine.vae import to_image
from calotype.imaging.contact_sheet import Axis, contact_sheet
from calotype.spec.recipe import Recipe
from calotype.train.builders import requirements_of
from calotype.train.data.dataloader import build_dataloader
from calotype.train.tasks.vae_loss import psnr
from calotype.train.trainer import StepMetrics, Trainer

MAX_IMAGES = 8


class Reconstructions:
    """One sheet every `sample_every_steps` steps, from averaged weights if any and the latents' mode."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self._recipe, self._folder = recipe, folder
        self._originals: Tensor | None = None

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        if step_metrics.step % self._recipe.logging.sample_every_steps or not trainer.process.is_first:
            return
        originals = self._load_originals(trainer)
        vae = trainer.subject.model.vae
        with trainer.averaged(), torch.no_grad():
            latents = vae.encode(originals.to(vae.dtype)).latent_dist.mode()
            restored = vae.decode(latents, return_dict=False)[0].float()
        rows = [[to_image(picture) for picture in pictures] for pictures in (originals, restored)]
        across = Axis("PSNR", tuple(f"{value:.1f} dB" for value in psnr(restored, originals).tolist()))
        down = Axis("", ("original", "restored"))
        sheet = contact_sheet(rows, across, down, f"step {step_metrics.step}")
        with atomic_write(self._folder / f"step-{step_metrics.step:08d}.png") as file:
            sheet.save(file, "PNG")

    def _load_originals(self, trainer: Trainer) -> Tensor:
        """The first images of the run's data, independent of the current step."""
        if self._originals is None:
            # A few images need neither workers nor a copy in memory.
            overrides = {"num_workers": 0, "in_memory": False}
            model, part = trainer.subject.model, self._recipe.data.model_copy(update=overrides)
            micro = self._recipe.model.micro_batch_size
            with build_dataloader(
                part, requirements_of(model, self._recipe), micro_batch_size=micro
            ) as dataloader:
                pixels = next(dataloader).to(model.device).pixels
            assert pixels is not None
            self._originals = pixels[:MAX_IMAGES]
        return self._originals
