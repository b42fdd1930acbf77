"""Denoises the latents of any number of sampling runs with one UNet evaluation.

Rows may differ in prompt, guidance, noise level and length of prompt; they only share the latent's shape.
All inputs of a row come from that row alone, so the batch does not change its image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import Row, UNetRunner
from calotype.models.model import Model
from calotype.sampling import DenoiseQuery, TrainingSchedule
from calotype.sampling.parameterization import PredictionType, scale_input, to_denoised


@dataclass(frozen=True, eq=False)
class Guidance:
    """Prompts and guidance scale of one sampling run. Compares by identity."""

    positive: Conditioning
    negative: Conditioning | None
    """None when guidance is off, which halves the work."""
    cfg: float
    time_ids: Tensor | None = None
    """SDXL's sizes and crop, one row."""
    negative_time_ids: Tensor | None = None
    """Those of the negative prompt, where they differ."""


@dataclass(frozen=True)
class DenoiseInput:
    """A sampler's query with the conditioning for its evaluation."""

    query: DenoiseQuery
    guidance: Guidance
    extra_channels: Tensor | None = None
    """Mask and masked image for models that read them beside the latent."""


class Denoiser:
    """Answers samplers' queries with a model's UNet."""

    def __init__(
        self,
        model: Model,
        schedule: TrainingSchedule,
        network: UNetRunner,
        guided_between: tuple[float, float] = (0.0, 1.0),
        *,
        shared_latents: bool = False,
    ) -> None:
        """`guided_between` is the interval of timesteps, as shares, that evaluates the negative prompt too.

        With `shared_latents` the network gets each latent once if all of them have both prompts: as many
        latents as positive rows, and after the positive rows the negative rows in the same order.
        """
        self._model, self._schedule, self._network = model, schedule, network
        self._shared_latents = shared_latents
        last = len(schedule.sigmas) - 1
        self._guided = (guided_between[0] * last, guided_between[1] * last)
        kind, known = model.architecture.prediction_type, get_args(PredictionType)
        if kind not in known:
            rule = f"its scheduler's prediction_type is {kind!r}; known: {', '.join(known)}"
            raise ModelFileError(model.identity.reference, rule)
        self._prediction = cast("PredictionType", kind)

    @torch.inference_mode()
    def denoise(self, inputs: Sequence[DenoiseInput], *, least_rows: int = 0) -> list[Tensor]:
        """The denoised estimate for each input, from one forward pass over all of them.

        The batch is padded to `least_rows` rows; the output of the padding is discarded.
        """
        input_rows = [_Rows(each, self._schedule, self._guided) for each in inputs]
        guided = [each for each in input_rows if each.negative]
        positive = [each.positive for each in input_rows for _ in range(len(each.sample))]
        negative = [each.negative for each in guided if each.negative for _ in range(len(each.sample))]
        num_pad_rows = max(0, least_rows - len(positive) - len(negative))
        samples = [each.sample for each in input_rows]
        if self._shared_latents and len(guided) == len(input_rows) and num_pad_rows % 2 == 0:
            # The padding consists of latents with two prompts as well.
            num_pad = num_pad_rows // 2
            first = positive + positive[-1:] * num_pad
            rows = first + negative + negative[-1:] * num_pad
        else:
            num_pad, first = num_pad_rows, positive
            samples += [each.sample for each in guided]
            rows = first + negative
            rows += rows[-1:] * num_pad
        if num_pad:
            # The padding repeats the last row: a new prompt or noise level would cost work.
            samples.append(samples[-1][-1:].expand(num_pad, -1, -1, -1))
        sample = torch.cat(samples).to(self._model.dtype)
        output = self._network.evaluate(sample, rows)
        # A copy in any precision: a network may overwrite its output in the next evaluation.
        output = output.to(torch.float32, copy=True)
        positives, negatives = _split(output, input_rows), _split(output[len(first) :], guided)
        return [
            each.denoised(positive, next(negatives) if each.negative else None, self._prediction)
            for each, positive in zip(input_rows, positives, strict=True)
        ]


def _split(output: Tensor, input_rows: Sequence[_Rows]) -> Iterator[Tensor]:
    """Split the first rows of an output by input."""
    sizes = [len(each.sample) for each in input_rows]
    return iter(output[: sum(sizes)].split(sizes))


class _Rows:
    """One input's rows of the batch: one per image, and one more per image if guided."""

    def __init__(
        self, denoise_input: DenoiseInput, schedule: TrainingSchedule, guided: tuple[float, float]
    ) -> None:
        self._x, self._sigma, _ = denoise_input.query
        self._guidance = guidance = denoise_input.guidance
        timestep = schedule.sigma_to_timestep(self._sigma)
        ids, others = guidance.time_ids, guidance.negative_time_ids
        self.positive = Row(timestep, guidance.positive, ids, of=guidance)
        self.negative: Row | None = None
        if guidance.negative and guided[0] <= timestep <= guided[1]:
            self.negative = Row(timestep, guidance.negative, ids if others is None else others, of=guidance)
        self.sample = scale_input(self._x, self._sigma)
        if denoise_input.extra_channels is not None:
            self.sample = torch.cat([self.sample, denoise_input.extra_channels], dim=1)

    def denoised(self, positive: Tensor, negative: Tensor | None, prediction: PredictionType) -> Tensor:
        # Guidance is linear, so it applies to the network's output before its conversion to an estimate.
        output = positive
        if negative is not None:
            output = negative + self._guidance.cfg * (positive - negative)
        return to_denoised(prediction, output, self._x, self._sigma)
