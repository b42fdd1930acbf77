"""Measure the standard deviation of an autoencoder's latents over a run's data."""

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
    """The standard deviation of samples from the latents' distributions, over the first data samples.

    A sample's variance is that of the means plus the mean of the variances, so nothing has to be sampled. No
    data sample counts twice: at most one epoch is read.
    """
    total = torch.zeros(3, dtype=torch.float64, device=model.device)
    part = recipe.data.model_copy(update={"in_memory": False})
    dataloader = build_dataloader(
        part, requirements_of(model, recipe), micro_batch_size=recipe.model.micro_batch_size
    )
    with dataloader:
        remaining = min(num_samples, dataloader.facts.num_samples or num_samples)
        while remaining > 0:
            pixels = next(dataloader).to(model.device).pixels
            assert pixels is not None
            distribution = model.vae.encode(pixels[:remaining].to(model.vae.dtype)).latent_dist
            mean, variance = distribution.mean.double(), distribution.var.double()
            total += torch.stack([torch.ones_like(mean).sum(), mean.sum(), (mean**2 + variance).sum()])
            remaining -= len(pixels)
    count, first, second = total.tolist()
    deviation = math.sqrt(max(second / count - (first / count) ** 2, 0))
    if not deviation > 0:  # NaN as well
        message = f"the latents have standard deviation {deviation}, so no scale follows; train for longer"
        raise CalotypeError(message)
    return deviation
