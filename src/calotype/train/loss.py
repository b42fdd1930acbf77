"""What the network is asked and how its answer is judged. Knows tensors, nothing of modules.

Noise here is variance-preserving, as the models were trained: x = √ᾱ · clean + √(1 − ᾱ) · noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.sampling import TrainingSchedule
from calotype.spec.recipe_sections import ObjectiveConfig


@dataclass(frozen=True)
class LossInput:
    """A noisy latent, the timestep it is at, and the right answer."""

    noisy: Tensor
    timesteps: Tensor
    target: Tensor
    weights: Tensor
    """How much each sample's error counts."""


class Objective:
    """Makes questions from clean latents, and judges answers."""

    def __init__(
        self, part: ObjectiveConfig, prediction_type: str, schedule: TrainingSchedule, device: torch.device
    ) -> None:
        self._part = part
        self._prediction = prediction_type
        sigmas = torch.tensor(schedule.sigmas, dtype=torch.float64)
        # From σ = √(1 − ᾱ) / √ᾱ, written so that σ = ∞ (no signal left) is a number too.
        self._signal = (1 / (sigmas**2 + 1)).sqrt().float().to(device)
        self._noise = (1 / (1 + sigmas**-2)).sqrt().float().to(device)
        self._weights = self._timestep_weights(sigmas).float().to(device)
        self.num_timesteps = len(schedule.sigmas)

    def ask(self, clean: Tensor, noise: Tensor, timesteps: Tensor, offset: Tensor | None = None) -> LossInput:
        """The question for each sample. `offset` is one number per sample and channel, for offset noise."""
        if offset is not None:
            noise = noise + self._part.offset_noise * offset[..., None, None]
        signal, deviation = (table[timesteps][:, None, None, None] for table in (self._signal, self._noise))
        noisy = signal * clean + deviation * noise
        target = noise if self._prediction == "epsilon" else signal * noise - deviation * clean
        return LossInput(noisy, timesteps, target, self._weights[timesteps])

    def loss(self, answer: Tensor, loss_input: LossInput) -> Tensor:
        """Mean over the batch of each sample's weighted squared error."""
        errors = (answer.float() - loss_input.target.float()).square().flatten(1).mean(1)
        return (errors * loss_input.weights).mean()

    @property
    def wants_offset(self) -> bool:
        return self._part.offset_noise > 0

    def _timestep_weights(self, sigmas: Tensor) -> Tensor:
        """Min-SNR-γ (Hang et al. 2023, arXiv:2303.09556), in the form that fits what is predicted."""
        if self._part.snr_gamma is None:
            return torch.ones_like(sigmas)
        if self._prediction == "epsilon":
            return (self._part.snr_gamma * sigmas**2).clamp(max=1)
        snr = sigmas**-2
        return snr.clamp(max=self._part.snr_gamma) / (snr + 1)
