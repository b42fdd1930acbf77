"""Loggers of a run: a JSON-lines file, a progress bar and TensorBoard. Weights & Biases has its own file.

Only the first rank writes what concerns the whole run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from calotype.core.extras import MissingExtraError
from calotype.core.paths import atomic_write
from calotype.core.progress import Progress
from calotype.spec.recipe import Recipe
from calotype.train.metrics import Metrics
from calotype.train.trainer import StepMetrics, Trainer


class MetricsFile:
    """One JSON object per line; lines of steps that a resumed run repeats are removed first."""

    def __init__(self, path: Path, first_step: int, run_metrics: Metrics) -> None:
        lines = _lines_before(path, first_step)
        # Atomic: a run that is killed while it starts keeps its earlier lines.
        with atomic_write(path, "w") as file:
            file.writelines(lines)
        self._file: IO[str] = path.open("a", encoding="utf-8")
        self._run_metrics = run_metrics

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del trainer
        if self._run_metrics.wanted(step_metrics):
            # JSON cannot represent non-finite numbers.
            values = {
                k: v if math.isfinite(v) else None for k, v in self._run_metrics.of(step_metrics).items()
            }
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def _lines_before(path: Path, first_step: int) -> list[str]:
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            continue  # the last line of a killed run may be cut off
        if step < first_step:
            lines.append(f"{line}\n")
    return lines


class ProgressBar:
    """Shows loss, speed, memory and MFU beside the bar; the whole line fits into 100 columns."""

    def __init__(self, progress: Progress, recipe: Recipe, first_step: int, run_metrics: Metrics) -> None:
        self._progress, self._run_metrics = progress, run_metrics
        progress.start(recipe.name, recipe.trainer.max_steps)
        progress.advance(first_step)

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        values = self._run_metrics.of(step_metrics)
        speed = f"{step_metrics.samples_per_s:.1f} samples/s"
        if trainer.process.world_size > 1:
            speed += f" ({step_metrics.samples_per_s / trainer.process.world_size:.1f} each)"
        parts = [f"loss {step_metrics.loss:.4f}", speed]
        if step_metrics.memory_bytes:
            parts.append(f"{step_metrics.memory_bytes / 2**30:.0f} GiB")
        if "mfu" in values:
            parts.append(f"MFU {values['mfu']:.0%}")
        self._progress.describe("  ".join(parts))
        self._progress.advance()


class TensorBoard:
    """Scalars for TensorBoard, if installed; for steps that a resumed run repeats, the last value counts."""

    def __init__(self, folder: Path, first_step: int, run_metrics: Metrics) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("tensorboard", "train", "logging.tensorboard=true") from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step)
        self._run_metrics = run_metrics

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del trainer
        if self._run_metrics.wanted(step_metrics):
            for name, value in shown_values(self._run_metrics.of(step_metrics)).items():
                self._writer.add_scalar(name, value, step_metrics.step)

    def close(self) -> None:
        self._writer.close()


_COUNTS = ("step", "samples", "skipped")


def shown_values(values: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a step that are worth a curve."""
    return {name: value for name, value in values.items() if name not in _COUNTS}
