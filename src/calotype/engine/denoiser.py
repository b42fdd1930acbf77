"""One UNet evaluation for any number of samplings at once.

Rows may differ in prompt, guidance, noise level and length of prompt; they only share the latent's shape.
Everything a row needs is worked out from that row alone, so company does not change its picture. Knows
nothing of requests.
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
    """What a sampling is steered by. Each has its own, equal to itself alone."""

    positive: Conditioning
    negative: Conditioning | None
    """Absent when guidance is off: half the work."""
    cfg: float
    time_ids: Tensor | None = None
    """SDXL's sizes and crop, one row."""
    negative_time_ids: Tensor | None = None
    """Those of the negative prompt, where they are others."""


@dataclass(frozen=True)
class DenoiseInput:
    """A sampler's query with what is needed to answer it."""

    query: DenoiseQuery
    guidance: Guidance
    extra_channels: Tensor | None = None
    """Mask and masked picture for models that read them beside the latent."""


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
        """`guided_between` is the share of the timesteps at which the negative prompt is asked too.

        With `shared_latents` the network is given each latent once where every one has both prompts: as many
        latents as rows with the prompt, and after those the rows with the negative prompt in the same order.
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
    def denoise(self, questions: Sequence[DenoiseInput], *, least_rows: int = 0) -> list[Tensor]:
        """The denoised estimate for each question, from one forward pass over all of them.

        Rows that are missing to `least_rows` are made up; nobody reads what the network says to them.
        """
        asked = [_Rows(question, self._schedule, self._guided) for question in questions]
        guided = [each for each in asked if each.negative]
        positive = [each.positive for each in asked for _ in range(len(each.sample))]
        negative = [each.negative for each in guided if each.negative for _ in range(len(each.sample))]
        missing = max(0, least_rows - len(positive) - len(negative))
        samples = [each.sample for each in asked]
        if self._shared_latents and len(guided) == len(asked) and missing % 2 == 0:
            # What is missing are pictures with two prompts as well.
            made_up = missing // 2
            first = positive + positive[-1:] * made_up
            rows = first + negative + negative[-1:] * made_up
        else:
            made_up, first = missing, positive
            samples += [each.sample for each in guided]
            rows = first + negative
            rows += rows[-1:] * made_up
        if made_up:
            # Told what the last row is told: a new prompt or noise level would be worked out for nobody.
            samples.append(samples[-1][-1:].expand(made_up, -1, -1, -1))
        sample = torch.cat(samples).to(self._model.dtype)
        output = self._network.evaluate(sample, rows)
        # A copy in any precision: a network may overwrite its answer with the next.
        output = output.to(torch.float32, copy=True)
        answers, others = _parts(output, asked), _parts(output[len(first) :], guided)
        return [
            each.denoised(one, next(others) if each.negative else None, self._prediction)
            for each, one in zip(asked, answers, strict=True)
        ]


def _parts(output: Tensor, asked: Sequence[_Rows]) -> Iterator[Tensor]:
    """What was said to each, of an output that begins with it."""
    sizes = [len(each.sample) for each in asked]
    return iter(output[: sum(sizes)].split(sizes))


class _Rows:
    """What one question takes of the batch: a row for each image, and again if guided."""

    def __init__(
        self, question: DenoiseInput, schedule: TrainingSchedule, guided: tuple[float, float]
    ) -> None:
        self._x, self._sigma, _ = question.query
        self._guidance = guidance = question.guidance
        timestep = schedule.sigma_to_timestep(self._sigma)
        ids, others = guidance.time_ids, guidance.negative_time_ids
        self.positive = Row(timestep, guidance.positive, ids, of=guidance)
        self.negative: Row | None = None
        if guidance.negative and guided[0] <= timestep <= guided[1]:
            self.negative = Row(timestep, guidance.negative, ids if others is None else others, of=guidance)
        self.sample = scale_input(self._x, self._sigma)
        if question.extra_channels is not None:
            self.sample = torch.cat([self.sample, question.extra_channels], dim=1)

    def denoised(self, positive: Tensor, negative: Tensor | None, prediction: PredictionType) -> Tensor:
        # Guidance is linear, so it may act on the network's output before that becomes an estimate.
        output = positive
        if negative is not None:
            output = negative + self._guidance.cfg * (positive - negative)
        return to_denoised(prediction, output, self._x, self._sigma)
