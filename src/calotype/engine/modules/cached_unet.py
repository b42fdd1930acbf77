"""A UNet run our own way: what prompts and timesteps contribute is made once and remembered.

Knows nothing of guidance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor

from calotype.engine.modules.unet import Unet
from calotype.engine.text_encoder import Conditioning
from calotype.engine.unet_runner import (
    Row,
    added_conditions,
    group_rows,
    pad_rows,
    repeat_rows,
    timesteps,
    token_mask,
)

Runner = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""`Unet.__call__`, or something that does the same faster."""

Fill = Callable[[Conditioning, int], Tensor]
"""A prompt made so many tokens long."""

_MAX_SHIFT_BYTES = 64 * 2**20
"""Of remembered timesteps: nine hundred of SDXL's, whose rows take 70 kB."""


@dataclass(frozen=True, eq=False)
class _KeysValues:
    """Of one prompt; there as long as somebody keeps it."""

    rows: Tensor


class CachedUNet:
    """`UNetRunner` over a `Unet`."""

    def __init__(
        self,
        unet: Unet,
        runner: Runner,
        *,
        prompts_once: bool,
        times_once: bool,
        on_change: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`on_change` is called when weights have changed."""
        self._unet, self._run, self._on_change = unet, runner, on_change
        self._prompts_once, self._times_once = prompts_once, times_once
        # 26 MB each in SDXL: kept as long as a picture that asks with them is under way, and not as long as
        # prompts are remembered.
        self._keys_values: WeakValueDictionary[tuple[Conditioning, int, Fill], _KeysValues] = (
            WeakValueDictionary()
        )
        self._needed: WeakKeyDictionary[object, set[_KeysValues]] = WeakKeyDictionary()
        self._shifts: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._last_prompts: tuple[Hashable, tuple[Tensor, Tensor | None]] | None = None

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        return self._run(*self.inputs(sample, rows))

    @torch.inference_mode()
    def inputs(self, sample: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """What a `Runner` is called with."""
        prompts, mask = self._prompts(rows, sample.dtype)
        return sample, self._times(rows, sample), prompts, mask

    def invalidate(self) -> None:
        for follow in self._on_change:
            follow()
        self._needed.clear()
        self._keys_values.clear()
        self._shifts.clear()
        self._last_prompts = None

    def _prompts(self, rows: Sequence[Row], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The rows' prompts; the very same tensor as long as the same rows ask with the same prompts."""
        # The prompts themselves are part of the key, not their ids: so they live as long as the answer does.
        key = tuple((row.prompt, count) for row, count in group_rows(rows))
        if self._prompts_once and self._last_prompts is not None and self._last_prompts[0] == key:
            return self._last_prompts[1]
        # Those of before are not to lie beside the next.
        self._last_prompts = None
        lengths = {row.prompt.context.shape[1] for row in rows}
        longest = max(lengths)
        # Attention to keys that are repeated is what it was, and needs no mask, nor what is made for one.
        fill = repeat_rows if all(longest % length == 0 for length in lengths) else pad_rows
        parts = [self._prompt(row, longest, fill, dtype).expand(count, -1) for row, count in group_rows(rows)]
        found = torch.cat(parts), token_mask(rows, longest) if fill is pad_rows else None
        self._last_prompts = (key, found)
        return found

    def _prompt(self, row: Row, tokens: int, fill: Fill, dtype: torch.dtype) -> Tensor:
        """Keys and values of a row's prompt, filled up to so many tokens."""
        key = (row.prompt, tokens, fill)
        known = self._keys_values.get(key)
        if known is None:
            known = _KeysValues(self._unet.prompt_rows(fill(row.prompt, tokens).to(dtype)))
        if self._prompts_once:
            self._keys_values[key] = known
            self._needed.setdefault(row.prompt if row.of is None else row.of, set()).add(known)
        return known.rows

    def _times(self, rows: Sequence[Row], sample: Tensor) -> Tensor:
        if not self._times_once:
            return self._unet.shift_rows(timesteps(rows, sample.device), added_conditions(rows, sample.dtype))
        return torch.cat([self._time(row, sample).expand(count, -1) for row, count in group_rows(rows)])

    def _time(self, row: Row, sample: Tensor) -> Tensor:
        # Only SDXL's depends on the prompt's summary; objects in a key live as long as the key.
        key = (row.timestep,) if row.time_ids is None else (row.timestep, row.prompt.pooled, row.time_ids)
        if key not in self._shifts:
            made = self._unet.shift_rows(
                timesteps([row], sample.device), added_conditions([row], sample.dtype)
            )
            while self._shifts and (len(self._shifts) + 1) * made.nbytes > _MAX_SHIFT_BYTES:
                self._shifts.popitem(last=False)
            self._shifts[key] = made
        return self._shifts[key]
