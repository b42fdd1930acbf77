"""Evaluations that leave out the deep part of the UNet, whose picture of a step before is used again.

From one noise level to the next the deep part changes little (DeepCache, Ma et al. 2023, arXiv:2312.00858).
The picture that comes out is another one, near the one it would have been. Knows nothing of samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from torch import Tensor

from calotype.engine.modules.cached_unet import CachedUNet
from calotype.engine.unet_runner import Row, group_rows

FARTHEST, FARTHEST_LATE, LATE = 85.0, 110.0, 450.0
"""Timesteps, of a thousand, that a deep picture serves for; farther if it was made when most noise was gone.
Of twenty even steps every other is cut and later two of three, of fifty three of four; of ten or fewer none,
whose deep pictures have little in common."""
MAX_CUT = 3
"""Evaluations in a row. Towards the end some schedules take many steps of few timesteps, and all count."""
SETTLED_AFTER = 20
"""Evaluations until both kinds have been run twice, in any schedule of so many."""


class DeepCacheUNet:
    """`UNetRunner` that evaluates the whole UNet when its deep picture is too old, or somebody else asks."""

    def __init__(
        self,
        own: CachedUNet,
        whole: Callable[..., tuple[Tensor, Tensor]],
        shallow: Callable[..., Tensor],
    ) -> None:
        """`whole` and `shallow` are a `Unet`'s `with_deep` and `shallow`, however they are run."""
        self._own, self._whole, self._shallow = own, whole, shallow
        self._who: Hashable = None
        self._made_at: list[float] = []
        """The timestep of each row at the last whole evaluation."""
        self._cut = 0
        """Evaluations since then."""
        self._deep: Tensor | None = None

    def evaluate(self, sample: Tensor, rows: Sequence[Row]) -> Tensor:
        # Somebody new in the batch has no deep picture yet.
        who = tuple((row.of, row.prompt, count) for row, count in group_rows(rows)), sample.shape
        if who != self._who:
            self._who, self._deep = who, None
        inputs = self._own.inputs(sample, rows)
        if self._deep is not None and self._cut < MAX_CUT and self._is_near(rows):
            self._cut += 1
            return self._shallow(*inputs, self._deep)
        # Gone before the next is made: one that fails leaves none that would pass for it.
        self._deep = None
        output, self._deep = self._whole(*inputs)
        self._cut, self._made_at = 0, [row.timestep for row in rows]
        return output

    def _is_near(self, rows: Sequence[Row]) -> bool:
        return all(
            abs(row.timestep - then) <= (FARTHEST if then > LATE else FARTHEST_LATE)
            for row, then in zip(rows, self._made_at, strict=True)
        )

    def invalidate(self) -> None:
        self._own.invalidate()
        self._who, self._deep = None, None
