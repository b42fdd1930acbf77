"""Write a file of the samples that a run could not read, as soon as each is found."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from calotype.train.data.dataloader import DataLoader
from calotype.train.trainer import StepMetrics, Trainer


class BadSampleCallback:
    """Appends names and reasons to `unreadable-rankN.jsonl`, except those that earlier starts wrote."""

    def __init__(self, dataloader: DataLoader, folder: Path, rank: int) -> None:
        self._dataloader, self._file = dataloader, folder / f"unreadable-rank{rank}.jsonl"
        self._num_written = 0

    def after_step(self, step_metrics: StepMetrics, trainer: Trainer) -> None:
        del step_metrics, trainer
        self.write_new()

    def write_new(self) -> None:
        """Write the samples that are not written yet."""
        unreadable = self._dataloader.report().unreadable
        if len(unreadable) == self._num_written:
            return
        known = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        lines = [json.dumps(asdict(sample)) for sample in unreadable[self._num_written :]]
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines if line not in known)
        self._num_written = len(unreadable)
