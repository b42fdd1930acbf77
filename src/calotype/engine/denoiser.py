"""One UNet evaluation for any number of samplings at once.

Rows may differ in prompt, guidance, noise level and length of prompt; they only share the latent's shape.
Everything a row needs is worked out from that row alone, so company does not change its picture. Knows
nothing of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from calotype.core.errors import ModelFileError
from calotype.engine.text import Conditioning
from calotype.models.model import Model
from calotype.sampling import Query, TrainingSchedule
from calotype.sampling.prediction import PredictionType, scale_input, to_denoised


@dataclass(frozen=True)
class Guidance:
    """What a sampling is steered by."""

    positive: Conditioning
    negative: Conditioning | None
    """Absent when guidance is off: half the work."""
    cfg: float
    time_ids: Tensor | None = None
    """SDXL's sizes and crop, one row."""


@dataclass(frozen=True)
class Question:
    """A sampler's query with what is needed to answer it."""

    query: Query
    guidance: Guidance
    extra_channels: Tensor | None = None
    """Mask and masked picture for models that read them beside the latent."""


class Denoiser:
    """Answers samplers' queries with a model's UNet."""

    def __init__(self, model: Model, schedule: TrainingSchedule) -> None:
        self._model = model
        self._schedule = schedule
        kind, known = model.architecture.prediction_type, get_args(PredictionType)
        if kind not in known:
            rule = f"its scheduler's prediction_type is {kind!r}; known: {', '.join(known)}"
            raise ModelFileError(model.identity.reference, rule)
        self._prediction = cast("PredictionType", kind)

    @torch.inference_mode()
    def answer(self, questions: Sequence[Question]) -> list[Tensor]:
        """The denoised estimate for each question, from one forward pass over all of them."""
        rows = [_Rows(question, self._schedule) for question in questions]
        dtype = self._model.dtype
        output = self._model.unet(
            torch.cat([r.sample for r in rows]).to(dtype),
            torch.cat([r.timesteps for r in rows]),
            **_prompts(rows, dtype),
            added_cond_kwargs=self._added(rows),
            return_dict=False,
        )[0]
        outputs = output.split([r.count for r in rows])
        return [r.denoised(part, self._prediction) for r, part in zip(rows, outputs, strict=True)]

    def _added(self, rows: Sequence[_Rows]) -> dict[str, Tensor] | None:
        if self._model.architecture.family != "sdxl":
            return None
        return {
            "text_embeds": torch.cat([r.pooled() for r in rows]).to(self._model.dtype),
            # In full precision whatever the model's: bf16 has no 1001.
            "time_ids": torch.cat([r.time_ids() for r in rows]),
        }


def _prompts(rows: Sequence[_Rows], dtype: torch.dtype) -> dict[str, Tensor | None]:
    """The prompts of all rows, made equally long; attention is told which tokens are only there for that."""
    lengths = {conditioning.context.shape[1] for r in rows for conditioning in r.conditionings}
    longest = max(lengths)
    context = torch.cat([r.context(longest) for r in rows]).to(dtype)
    mask = torch.cat([r.said(longest) for r in rows]) if len(lengths) > 1 else None
    return {"encoder_hidden_states": context, "encoder_attention_mask": mask}


class _Rows:
    """The rows one question takes in the batch: its images, and again for the negative prompt."""

    def __init__(self, question: Question, schedule: TrainingSchedule) -> None:
        self._x, self._sigma, _ = question.query
        self._guidance = guidance = question.guidance
        self.conditionings = [guidance.positive] + ([guidance.negative] if guidance.negative else [])
        self._images = len(self._x)
        self.count = self._images * len(self.conditionings)
        scaled = scale_input(self._x, self._sigma)
        if question.extra_channels is not None:
            scaled = torch.cat([scaled, question.extra_channels], dim=1)
        self.sample = torch.cat([scaled] * len(self.conditionings))
        # Filled on the device from a host number: nothing waits.
        self.timesteps = self._x.new_full((self.count,), schedule.sigma_to_timestep(self._sigma))

    def context(self, tokens: int) -> Tensor:
        parts = [pad(c.context, (0, 0, 0, tokens - c.context.shape[1])) for c in self.conditionings]
        return torch.cat([part.expand(self._images, -1, -1) for part in parts])

    def said(self, tokens: int) -> Tensor:
        """1 for tokens of the prompt, 0 for those that only fill the row."""
        places = torch.arange(tokens, device=self._x.device)
        parts = [(places < c.context.shape[1])[None].expand(self._images, -1) for c in self.conditionings]
        return torch.cat(parts)

    def pooled(self) -> Tensor:
        parts = [c.pooled for c in self.conditionings if c.pooled is not None]
        return torch.cat([part.expand(self._images, -1) for part in parts])

    def time_ids(self) -> Tensor:
        assert self._guidance.time_ids is not None
        return self._guidance.time_ids.expand(self.count, -1)

    def denoised(self, output: Tensor, prediction: PredictionType) -> Tensor:
        # Guidance is linear, so it may act on the network's output before that becomes an estimate.
        if len(self.conditionings) == 2:
            positive, negative = output.float().chunk(2)
            output = negative + self._guidance.cfg * (positive - negative)
        return to_denoised(prediction, output.float(), self._x, self._sigma)
