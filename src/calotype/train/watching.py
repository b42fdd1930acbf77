"""Who watches a run: lines of JSON, a progress bar, TensorBoard.

Only the first process writes what all share. Knows nothing of the update itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from calotype.core.errors import NotFoundError
from calotype.core.paths import written_whole
from calotype.core.progress import Progress
from calotype.spec.recipe import Recipe
from calotype.train.loop import Loop, StepNews


class MetricsFile:
    """One JSON object a line; steps that a resumed run repeats are dropped first, so none is there twice."""

    def __init__(self, path: Path, first_step: int, every_steps: int) -> None:
        kept = _lines_before(path, first_step)
        # Whole or not at all: a run that is killed while it starts keeps the lines it had.
        with written_whole(path, "w") as file:
            file.writelines(kept)
        self._file: IO[str] = path.open("a", encoding="utf-8")
        self._every = every_steps

    def after_step(self, news: StepNews, loop: Loop) -> None:
        del loop
        if news.step % self._every == 0 or news.skipped:
            # JSON has no word for what is not finite.
            values = {key: value if math.isfinite(value) else None for key, value in numbers_of(news).items()}
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def numbers_of(news: StepNews) -> dict[str, Any]:
    """Everything known after an update, side by side."""
    values = asdict(news)
    figures: dict[str, float] = values.pop("figures")
    return values | figures


def _lines_before(path: Path, first_step: int) -> list[str]:
    if not path.is_file():
        return []
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            continue  # the last line of a killed run may be cut off
        if step < first_step:
            kept.append(f"{line}\n")
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
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
        except ImportError:
            rule = "logging.tensorboard=true needs tensorboard"
            raise NotFoundError(f"{rule}: pip install 'calotype[train]'") from None
        self._writer: Any = SummaryWriter(str(folder))

    def after_step(self, news: StepNews, loop: Loop) -> None:
        del loop
        numbers = numbers_of(news)
        for name in ("loss", "gradient_norm", "learning_rate", "samples_per_s", *news.figures):
            self._writer.add_scalar(name, numbers[name], news.step)

    def close(self) -> None:
        self._writer.close()
