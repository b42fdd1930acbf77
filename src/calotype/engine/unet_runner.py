"""One evaluation of a UNet over rows that may all differ, and the plain way to do it.

Knows nothing of samplers or guidance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from calotype.engine.text_encoder import Conditioning
from calotype.models.model import Model


@dataclass(frozen=True, eq=False)
class Row:
    """What a row of latents is told. Rows of one picture's batch share theirs."""

    timestep: float
    prompt: Conditioning
    time_ids: Tensor | None = None
    """SDXL's sizes and crop, (1, 6)."""
    of: object = None
    """Whose row it is: the same object at every step of a sampling, and gone with it."""


class UNetRunner(Protocol):
    """A model's UNet, however it is run."""

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        """What the UNet says to each row of `sample`, which is in the model's precision.

        A network that is known to share latents may be given fewer of them than rows: see `Denoiser`.
        """
        ...

    def invalidate(self) -> None:
        """The weights have changed: nothing that was worked out from them holds any more."""
        ...


class DiffusersUNet:
    """diffusers' own forward pass."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        context, mask = stack_contexts(rows)
        return self._model.unet(
            sample,
            timesteps(rows, sample.device),
            encoder_hidden_states=context.to(sample.dtype),
            encoder_attention_mask=mask,
            added_cond_kwargs=added_conditions(rows, sample.dtype),
            return_dict=False,
        )[0]

    def invalidate(self) -> None:
        """It remembers nothing."""


def timesteps(rows: Sequence[Row], device: torch.device) -> Tensor:
    """A row's timestep each. Filled on the device from host numbers: nothing waits."""
    parts = [torch.full((count,), row.timestep, device=device) for row, count in group_rows(rows)]
    return torch.cat(parts)


def stack_contexts(rows: Sequence[Row]) -> tuple[Tensor, Tensor | None]:
    """The prompts of all rows, made equally long; the mask says which tokens are not only there for that."""
    lengths = {row.prompt.context.shape[1] for row in rows}
    longest = max(lengths)
    context = torch.cat(
        [pad_rows(row.prompt, longest).expand(count, -1, -1) for row, count in group_rows(rows)]
    )
    return context, token_mask(rows, longest) if len(lengths) > 1 else None


def pad_rows(prompt: Conditioning, tokens: int) -> Tensor:
    return pad(prompt.context, (0, 0, 0, tokens - prompt.context.shape[1]))


def repeat_rows(prompt: Conditioning, tokens: int) -> Tensor:
    """The prompt as often as makes so many tokens, which are a multiple of its own."""
    return prompt.context.repeat(1, tokens // prompt.context.shape[1], 1)


def token_mask(rows: Sequence[Row], tokens: int) -> Tensor:
    """True for tokens of the prompt, False for those that only fill the row."""
    places = torch.arange(tokens, device=rows[0].prompt.context.device)
    return torch.cat(
        [(places < row.prompt.context.shape[1]).expand(count, -1) for row, count in group_rows(rows)]
    )


def added_conditions(rows: Sequence[Row], dtype: torch.dtype) -> dict[str, Tensor] | None:
    """What SDXL is told beside the prompt; None for models that are told nothing."""
    if rows[0].time_ids is None:
        return None
    pooled, ids = [], []
    for row, count in group_rows(rows):
        assert row.prompt.pooled is not None
        assert row.time_ids is not None
        pooled.append(row.prompt.pooled.expand(count, -1))
        ids.append(row.time_ids.expand(count, -1))
    # The sizes in full precision whatever the model's: bf16 has no 1001.
    return {"text_embeds": torch.cat(pooled).to(dtype), "time_ids": torch.cat(ids)}


def group_rows(rows: Sequence[Row]) -> list[tuple[Row, int]]:
    """Rows that follow one another and are the same one, with their number."""
    found: list[tuple[Row, int]] = []
    for row in rows:
        if found and found[-1][0] is row:
            found[-1] = (row, found[-1][1] + 1)
        else:
            found.append((row, 1))
    return found
