"""Who watches a run: lines of JSON, TensorBoard, Weights & Biases, checkpoints, the request to stop.

Only the first process writes what all share. Knows nothing of the update itself.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from calotype.core.progress import Progress
from calotype.spec.recipe import Recipe
from calotype.train.loop import Loop, StepNews


class MetricsFile:
    """One JSON object a line; steps that a resumed run repeats are dropped first, so none is there twice."""

    def __init__(self, path: Path, first_step: int, every_steps: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = _lines_before(path, first_step)
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._file.writelines(kept)
        self._file.flush()
        self._every = every_steps

    def after_step(self, news: StepNews, loop: Loop) -> None:
        del loop
        if news.step % self._every == 0 or news.skipped:
            self._file.write(json.dumps(asdict(news)) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def _lines_before(path: Path, first_step: int) -> list[str]:
    if not path.is_file():
        return []
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError):
            continue  # the last line of a killed run may be cut off
        if step < first_step:
            kept.append(line)
    return kept


class ProgressBar:
    """Loss and speed beside the bar."""

    def __init__(self, progress: Progress, recipe: Recipe, first_step: int) -> None:
        self._progress, self._recipe = progress, recipe
        progress.start(recipe.name, recipe.trainer.max_steps)
        progress.advance(first_step)

    def after_step(self, news: StepNews, loop: Loop) -> None:
        each = news.samples_per_s / loop.process.world_size
        memory = f", {news.memory_bytes / 2**30:.1f} GiB" if news.memory_bytes else ""
        speed = f"{news.samples_per_s:.1f} samples/s ({each:.1f} a device{memory})"
        self._progress.describe(f"{self._recipe.name}  loss {news.loss:.4f}  {speed}")
        self._progress.advance()


class TensorBoard:
    """Scalars for TensorBoard, if it is installed."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra

        self._writer: Any = SummaryWriter(str(folder))

    def after_step(self, news: StepNews, loop: Loop) -> None:
        del loop
        for name in ("loss", "gradient_norm", "learning_rate", "samples_per_s"):
            self._writer.add_scalar(name, getattr(news, name), news.step)

    def close(self) -> None:
        self._writer.close()
