"""A UNet run our own way: what prompts and timesteps contribute is made once and remembered.

Knows nothing of guidance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calotype.engine.evaluation import Row, added_conditions, padded, repeated, runs, said, timesteps
from calotype.engine.network.unet import Unet
from calotype.engine.text import Conditioning

Runner = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""`Unet.__call__`, or something that does the same faster."""

Fill = Callable[[Conditioning, int], Tensor]
"""A prompt made so many tokens long."""

_MOST_SHIFTS = 4096
"""Of remembered timesteps; a row of SDXL's takes 70 kB."""


class OwnNetwork:
    """`Network` over a `Unet`."""

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
        self._keys_values: WeakKeyDictionary[Conditioning, dict[tuple[int, Fill], Tensor]] = (
            WeakKeyDictionary()
        )
        self._shifts: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._last_prompts: tuple[Hashable, tuple[Tensor, Tensor | None]] | None = None

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        return self._run(*self.inputs(sample, rows))

    @torch.inference_mode()
    def inputs(self, sample: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """What a `Runner` is called with."""
        prompts, mask = self._prompts(rows, sample.dtype)
        return sample, self._times(rows, sample), prompts, mask

    def forget(self) -> None:
        for follow in self._on_change:
            follow()
        self._keys_values.clear()
        self._shifts.clear()
        self._last_prompts = None

    def _prompts(self, rows: Sequence[Row], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The rows' prompts; the very same tensor as long as the same rows ask with the same prompts."""
        # The prompts themselves are part of the key, not their ids: so they live as long as the answer does.
        key = tuple((row.prompt, count) for row, count in runs(rows))
        if self._prompts_once and self._last_prompts is not None and self._last_prompts[0] == key:
            return self._last_prompts[1]
        lengths = {row.prompt.context.shape[1] for row in rows}
        longest = max(lengths)
        # Attention to keys that are repeated is what it was, and needs no mask, nor what is made for one.
        fill = repeated if all(longest % length == 0 for length in lengths) else padded
        parts = [
            self._prompt(row.prompt, longest, fill, dtype).expand(count, -1) for row, count in runs(rows)
        ]
        found = torch.cat(parts), said(rows, longest) if fill is padded else None
        self._last_prompts = (key, found)
        return found

    def _prompt(self, prompt: Conditioning, tokens: int, fill: Fill, dtype: torch.dtype) -> Tensor:
        """Keys and values of one prompt, filled up to so many tokens."""
        known = self._keys_values.setdefault(prompt, {}) if self._prompts_once else {}
        if (tokens, fill) not in known:
            known[tokens, fill] = self._unet.prompt_rows(fill(prompt, tokens).to(dtype))
        return known[tokens, fill]

    def _times(self, rows: Sequence[Row], sample: Tensor) -> Tensor:
        if not self._times_once:
            return self._unet.shift_rows(timesteps(rows, sample.device), added_conditions(rows, sample.dtype))
        return torch.cat([self._time(row, sample).expand(count, -1) for row, count in runs(rows)])

    def _time(self, row: Row, sample: Tensor) -> Tensor:
        # Only SDXL's depends on the prompt; objects in a key live as long as the key.
        key = (row.timestep,) if row.time_ids is None else (row.timestep, row.prompt, row.time_ids)
        if key not in self._shifts:
            self._shifts[key] = self._unet.shift_rows(
                timesteps([row], sample.device), added_conditions([row], sample.dtype)
            )
            while len(self._shifts) > _MOST_SHIFTS:
                self._shifts.popitem(last=False)
        return self._shifts[key]
