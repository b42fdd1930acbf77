"""Log a run to Weights & Biases, if it is installed.

In offline mode nothing leaves the machine: the values stay in the run's folder until `wandb sync` sends them.
"""

from __future__ import annotations

import os
import secrets
from importlib import import_module
from pathlib import Path
from typing import Any

from calotype.core.extras import MissingExtraError
from calotype.core.paths import atomic_write
from calotype.spec.recipe import Recipe
from calotype.train.callbacks.loggers import shown_values
from calotype.train.metrics import Metrics
from calotype.train.trainer import StepMetrics, Trainer

ID_FILE = "wandb-id"


class WandbRun:
    """Logs the same metrics as metrics.jsonl; a resumed run continues under the same id."""

    def __init__(self, folder: Path, recipe: Recipe, run_metrics: Metrics) -> None:
        mode = recipe.logging.wandb
        wandb = _wandb(mode)
        self._run_metrics = run_metrics
        self._run: Any = wandb.init(
            project=recipe.logging.wandb_project,
            name=recipe.name,
            id=_load_or_create_id(folder / ID_FILE),
            # Without a server the run's state cannot be looked up.
            resume="allow" if mode == "online" else None,
            dir=str(folder),
            mode=mode,
            config=recipe.model_dump(mode="json"),
            settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
        )

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del trainer
        if self._run_metrics.wanted(step_metrics):
            self._run.log(shown_values(self._run_metrics.of(step_metrics)), step=step_metrics.step)

    def close(self) -> None:
        self._run.finish()


def _wandb(mode: str) -> Any:
    if mode == "offline":
        # wandb would report its own starts and errors to its vendor; it reads this when imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        return import_module("wandb")
    except ImportError:
        raise MissingExtraError("wandb", "train", f"logging.wandb={mode}") from None


def _load_or_create_id(file: Path) -> str:
    if not file.is_file():
        with atomic_write(file, "w") as out:
            out.write(secrets.token_hex(4))
    return file.read_text(encoding="utf-8").strip()
