"""A file of the samples a run could not read, each as soon as it is met. Knows nothing of why."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from calotype.train.data.dataloader import DataLoader
from calotype.train.trainer import StepMetrics, Trainer


class BadSampleCallback:
    """Appends names and reasons to `unreadable-rankN.jsonl`; one that earlier starts met is there already."""

    def __init__(self, dataloader: DataLoader, folder: Path, rank: int) -> None:
        self._dataloader, self._file = dataloader, folder / f"unreadable-rank{rank}.jsonl"
        self._num_kept = 0

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del step_metrics, trainer
        self.keep()

    def keep(self) -> None:
        """Write what is not written yet."""
        found = self._dataloader.report().unreadable
        if len(found) == self._num_kept:
            return
        known = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        lines = [json.dumps(asdict(sample)) for sample in found[self._num_kept :]]
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines if line not in known)
        self._num_kept = len(found)
