"""Which checkpoints may go: all but the last few and the best. Knows nothing of files."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.train.checkpoint.survey import Checkpoint


def kept(checkpoints: Sequence[Checkpoint], keep_last: int, keep_best: int) -> list[Checkpoint]:
    """The last `keep_last` of `checkpoints`, which are in the order of saving, and the `keep_best` best."""
    chosen = list(checkpoints[-keep_last:])
    return [*(best for best in best_of(checkpoints, keep_best) if best not in chosen), *chosen]


def best_of(checkpoints: Sequence[Checkpoint], count: int = 1) -> list[Checkpoint]:
    """Those with the lowest metric, the best first; of equals the one saved last."""
    judged = [(c.metric, -place, c) for place, c in enumerate(checkpoints) if c.metric is not None]
    return [checkpoint for _, _, checkpoint in sorted(judged, key=lambda entry: entry[:2])[:count]]
