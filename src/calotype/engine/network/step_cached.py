"""Evaluations that leave out the deep part of the UNet, whose picture of the step before is used again.

From one noise level to the next the deep part changes little (DeepCache, Ma et al. 2023, arXiv:2312.00858).
The picture that comes out is another one, near the one it would have been. Knows nothing of samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from torch import Tensor

from calotype.engine.evaluation import Row, runs
from calotype.engine.network.own import OwnNetwork

FIRST_WHOLE = 2
"""Evaluations at the start that are never cut short: what the picture will show is decided there."""
SETTLED_AFTER = FIRST_WHOLE + 3
"""Evaluations until both kinds have been run twice, however many lie between two whole ones."""


class StepCached:
    """`Network` that evaluates the whole UNet every so many times, as long as the same rows ask."""

    def __init__(
        self,
        own: OwnNetwork,
        whole: Callable[..., tuple[Tensor, Tensor]],
        shallow: Callable[..., Tensor],
        *,
        every: int,
    ) -> None:
        """`whole` and `shallow` are a `Unet`'s `with_deep` and `shallow`, however they are run."""
        self._own, self._whole, self._shallow, self._every = own, whole, shallow, every
        self._who: Hashable = None
        self._asked = 0
        self._deep: Tensor | None = None

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        # Somebody new in the batch has no deep picture yet.
        who = tuple((row.of, row.prompt, count) for row, count in runs(rows)), sample.shape
        if who != self._who:
            self._who, self._asked, self._deep = who, 0, None
        inputs = self._own.inputs(sample, rows)
        turn = self._asked - FIRST_WHOLE
        self._asked += 1
        if self._deep is not None and turn >= 0 and (turn + 1) % self._every:
            return self._shallow(*inputs, self._deep)
        output, self._deep = self._whole(*inputs)
        return output

    def forget(self) -> None:
        self._own.forget()
        self._who, self._deep = None, None
