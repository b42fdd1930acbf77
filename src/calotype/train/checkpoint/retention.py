"""Which checkpoints may go: all but the last few and the best. Knows nothing of files."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.train.checkpoint.survey import Checkpoint


def kept(checkpoints: Sequence[Checkpoint], keep_last: int, keep_best: bool) -> list[Checkpoint]:
    """The last `keep_last` of `checkpoints`, which are in the order of saving, and the best if asked for."""
    chosen = list(checkpoints[-keep_last:])
    best = best_of(checkpoints) if keep_best else None
    return chosen if best is None or best in chosen else [best, *chosen]


def best_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The one with the lowest metric; of equals the one saved last."""
    best: Checkpoint | None = None
    for checkpoint in checkpoints:
        if checkpoint.metric is None:
            continue
        if best is None or best.metric is None or checkpoint.metric <= best.metric:
            best = checkpoint
    return best
