"""The interface that evaluates a UNet over rows that may all differ, and the diffusers implementation."""

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
    """The conditioning of a row of latents. Rows of one batch of a run share it."""

    timestep: float
    prompt: Conditioning
    time_ids: Tensor | None = None
    """SDXL's sizes and crop, (1, 6)."""
    of: object = None
    """The owner, for caches: the same object at every step of a sampling run, and freed with it."""


class UNetRunner(Protocol):
    """Runs a model's UNet."""

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        """The UNet's output for each row of `sample`, which is in the model's precision.

        A network that shares latents may get fewer latents than rows: see `Denoiser`.
        """
        ...

    def invalidate(self) -> None:
        """Drop all state derived from the weights: they have changed."""
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
        """Keeps no derived state."""


def timesteps(rows: Sequence[Row], device: torch.device) -> Tensor:
    """The timestep of each row. Filled on the device from host numbers, without a synchronization."""
    parts = [torch.full((count,), row.timestep, device=device) for row, count in group_rows(rows)]
    return torch.cat(parts)


def stack_contexts(rows: Sequence[Row]) -> tuple[Tensor, Tensor | None]:
    """The prompts of all rows, padded to one length; the mask is False for padding."""
    lengths = {row.prompt.context.shape[1] for row in rows}
    longest = max(lengths)
    context = torch.cat(
        [pad_rows(row.prompt, longest).expand(count, -1, -1) for row, count in group_rows(rows)]
    )
    return context, token_mask(rows, longest) if len(lengths) > 1 else None


def pad_rows(prompt: Conditioning, tokens: int) -> Tensor:
    return pad(prompt.context, (0, 0, 0, tokens - prompt.context.shape[1]))


def repeat_rows(prompt: Conditioning, tokens: int) -> Tensor:
    """The prompt repeated to `tokens` tokens, a multiple of its own length."""
    return prompt.context.repeat(1, tokens // prompt.context.shape[1], 1)


def token_mask(rows: Sequence[Row], tokens: int) -> Tensor:
    """True for tokens of the prompt, False for padding."""
    positions = torch.arange(tokens, device=rows[0].prompt.context.device)
    return torch.cat(
        [(positions < row.prompt.context.shape[1]).expand(count, -1) for row, count in group_rows(rows)]
    )


def added_conditions(rows: Sequence[Row], dtype: torch.dtype) -> dict[str, Tensor] | None:
    """SDXL's conditioning beside the prompt; None for models without it."""
    if rows[0].time_ids is None:
        return None
    pooled, ids = [], []
    for row, count in group_rows(rows):
        assert row.prompt.pooled is not None
        assert row.time_ids is not None
        pooled.append(row.prompt.pooled.expand(count, -1))
        ids.append(row.time_ids.expand(count, -1))
    # The sizes stay in fp32 in any precision of the model: bf16 cannot represent 1001.
    return {"text_embeds": torch.cat(pooled).to(dtype), "time_ids": torch.cat(ids)}


def group_rows(rows: Sequence[Row]) -> list[tuple[Row, int]]:
    """Runs of consecutive identical rows, with their lengths."""
    groups: list[tuple[Row, int]] = []
    for row in rows:
        if groups and groups[-1][0] is row:
            groups[-1] = (row, groups[-1][1] + 1)
        else:
            groups.append((row, 1))
    return groups
