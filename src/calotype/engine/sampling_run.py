"""A batch of images in progress: the state of its sampler and its next UNet input.

The holder of the runs decides when each advances; see `Engine.step`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.engine.denoiser import DenoiseInput, Guidance
from calotype.sampling import DenoiseQuery, SamplerGenerator
from calotype.sampling.noise import add_scaled_noise
from calotype.spec.generate_request import LoraUse


@dataclass(frozen=True)
class InpaintMask:
    """The part of an image that inpainting keeps."""

    clean: Tensor
    noise: Tensor
    paint: Tensor
    """1 where the image is repainted, 0 where it is kept; in latent size."""

    def mask_input(self, query: DenoiseQuery) -> DenoiseQuery:
        """Outside the mask the model sees the known image at the same noise level."""
        return query._replace(
            x=torch.lerp(add_scaled_noise(self.clean, self.noise, query.sigma), query.x, self.paint)
        )

    def mask_output(self, denoised: Tensor) -> Tensor:
        return torch.lerp(self.clean, denoised, self.paint)


class SamplingRun:
    """One sampling in progress. `latents` is the latest estimate, and the final result once `done`."""

    def __init__(
        self,
        sampling: SamplerGenerator,
        guidance: Guidance,
        total_steps: int,
        *,
        keep: InpaintMask | None = None,
        extra_channels: Tensor | None = None,
        loras: tuple[LoraUse, ...] = (),
    ) -> None:
        self.total_steps = total_steps
        self.steps_done = 0
        self.loras = loras
        self.latents: Tensor | None = None
        self._sampling = sampling
        self._guidance = guidance
        self._keep = keep
        self._extra_channels = extra_channels
        self._query: DenoiseQuery | None = next(sampling)

    @property
    def done(self) -> bool:
        return self._query is None

    def query(self) -> DenoiseInput:
        assert self._query is not None, "a finished run has no query"
        query = self._keep.mask_input(self._query) if self._keep else self._query
        return DenoiseInput(query, self._guidance, self._extra_channels)

    def send(self, denoised: Tensor) -> bool:
        """Take the denoised estimate and advance to the next query; True when that completes a step."""
        assert self._query is not None
        if self._keep:
            denoised = self._keep.mask_output(denoised)
        self.latents = denoised
        before = self._query.step
        try:
            self._query = self._sampling.send(denoised)
        except StopIteration as end:
            self._query, self.latents = None, end.value
            self.steps_done = self.total_steps
            return True
        self.steps_done = self._query.step
        return self._query.step > before
