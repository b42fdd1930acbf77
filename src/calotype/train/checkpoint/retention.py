"""Decide which checkpoints to keep: the last few and the best."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.train.checkpoint.discovery import Checkpoint


def kept(checkpoints: Sequence[Checkpoint], keep_last: int, keep_best: int) -> list[Checkpoint]:
    """The last `keep_last` of `checkpoints`, which are in the order of saving, and the `keep_best` best.

    With several kinds of metric it keeps the best of each: a run may return to an earlier kind.
    """
    chosen = list(checkpoints[-keep_last:])
    for name in dict.fromkeys(checkpoint.metric_name for checkpoint in checkpoints):
        chosen += [best for best in _best_by(name, checkpoints, keep_best) if best not in chosen]
    return chosen


def best_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The lowest metric among those of the newest one's kind; among equals the one saved last."""
    names = [checkpoint.metric_name for checkpoint in checkpoints if checkpoint.metric is not None]
    return next(iter(_best_by(names[-1], checkpoints, 1)), None) if names else None


def _best_by(name: str | None, checkpoints: Sequence[Checkpoint], count: int) -> list[Checkpoint]:
    """Lowest first. A checkpoint that does not name its kind of metric is compared with all."""
    ranked = [
        (checkpoint.metric, -place, checkpoint)
        for place, checkpoint in enumerate(checkpoints)
        if checkpoint.metric is not None and (name is None or checkpoint.metric_name in (None, name))
    ]
    return [checkpoint for _, _, checkpoint in sorted(ranked, key=lambda entry: entry[:2])[:count]]
