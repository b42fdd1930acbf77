"""How far an autoencoder's latents lie apart over a run's data. Draws nothing, trains nothing."""

from __future__ import annotations

import math

import torch

from calotype.core.errors import CalotypeError
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.builders import requirements_of
from calotype.train.data.dataloader import build_dataloader


@torch.no_grad()
def latent_deviation(model: Model, recipe: Recipe, num_samples: int) -> float:
    """The standard deviation of what is drawn from the latents' distributions, over the first samples.

    A draw's variance is that of the means plus the mean of the variances, so nothing has to be drawn. No
    sample counts twice: at most one epoch is looked at.
    """
    total = torch.zeros(3, dtype=torch.float64, device=model.device)
    part = recipe.data.model_copy(update={"in_memory": False})
    dataloader = build_dataloader(
        part, requirements_of(model, recipe), micro_batch_size=recipe.model.micro_batch_size
    )
    with dataloader:
        left = min(num_samples, dataloader.facts.num_samples or num_samples)
        while left > 0:
            pixels = next(dataloader).to(model.device).pixels
            assert pixels is not None
            found = model.vae.encode(pixels[:left].to(model.vae.dtype)).latent_dist
            mean, variance = found.mean.double(), found.var.double()
            total += torch.stack([torch.ones_like(mean).sum(), mean.sum(), (mean**2 + variance).sum()])
            left -= len(pixels)
    count, first, second = total.tolist()
    deviation = math.sqrt(max(second / count - (first / count) ** 2, 0))
    if not deviation > 0:  # NaN as well
        raise CalotypeError(f"the latents deviate by {deviation}, so they have no scale; train for longer")
    return deviation
