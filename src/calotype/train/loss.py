"""The diffusion training objective: noisy inputs, prediction targets and the loss.

Noise is variance-preserving, as in the models' training: x = √ᾱ · clean + √(1 − ᾱ) · noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.sampling import TrainingSchedule
from calotype.spec.recipe_sections import ObjectiveConfig


@dataclass(frozen=True)
class LossInput:
    """A noisy latent, its timestep, and the prediction target."""

    noisy: Tensor
    timesteps: Tensor
    target: Tensor
    weights: Tensor
    """The weight of each sample's error."""


class Objective:
    """Makes loss inputs from clean latents, and computes the loss of predictions."""

    def __init__(
        self, part: ObjectiveConfig, prediction_type: str, schedule: TrainingSchedule, device: torch.device
    ) -> None:
        self._part = part
        self._prediction = prediction_type
        sigmas = torch.tensor(schedule.sigmas, dtype=torch.float64)
        # From σ = √(1 − ᾱ) / √ᾱ, rearranged so that σ = ∞ (no signal left) gives a number too.
        self._signal = (1 / (sigmas**2 + 1)).sqrt().float().to(device)
        self._noise = (1 / (1 + sigmas**-2)).sqrt().float().to(device)
        self._weights = self._timestep_weights(sigmas).float().to(device)
        self.num_timesteps = len(schedule.sigmas)

    def ask(self, clean: Tensor, noise: Tensor, timesteps: Tensor, offset: Tensor | None = None) -> LossInput:
        """The loss input of each sample. `offset` is one number per sample and channel, for offset noise."""
        if offset is not None:
            noise = noise + self._part.offset_noise * offset[..., None, None]
        signal, noise_scale = (table[timesteps][:, None, None, None] for table in (self._signal, self._noise))
        noisy = signal * clean + noise_scale * noise
        target = noise if self._prediction == "epsilon" else signal * noise - noise_scale * clean
        return LossInput(noisy, timesteps, target, self._weights[timesteps])

    def loss(self, prediction: Tensor, loss_input: LossInput) -> Tensor:
        """The mean over the batch of each sample's weighted squared error."""
        errors = (prediction.float() - loss_input.target.float()).square().flatten(1).mean(1)
        return (errors * loss_input.weights).mean()

    @property
    def wants_offset(self) -> bool:
        return self._part.offset_noise > 0

    def _timestep_weights(self, sigmas: Tensor) -> Tensor:
        """Min-SNR-γ (Hang et al. 2023, arXiv:2303.09556), in the form for the prediction type."""
        if self._part.snr_gamma is None:
            return torch.ones_like(sigmas)
        if self._prediction == "epsilon":
            return (self._part.snr_gamma * sigmas**2).clamp(max=1)
        snr = sigmas**-2
        return snr.clamp(max=self._part.snr_gamma) / (snr + 1)
