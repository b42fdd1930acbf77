"""A program: `calotype` with the words after the first, after which each rank writes what it holds of the
weights, the optimizer's moments and the averages, as counts of numbers, into a folder.

torchrun ... -m tests.unit.train.counted_run FOLDER train RECIPE KEY=VALUE...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from calotype.cli.main import run
from calotype.train.distributed.fsdp import own_part
from calotype.train.trainer import Trainer


def count_into(folder: Path) -> None:
    """Arrange for the counting at the end of training."""
    real = Trainer.run

    def counted(loop: Trainer, *arguments: Any) -> None:
        real(loop, *arguments)
        assert loop.ema is not None
        parameters = loop.subject.parameters().values()
        counts = {
            "all": sum(p.numel() for p in parameters),
            "weights": sum(own_part(p).numel() for p in parameters),
            "moments": sum(own_part(each["exp_avg"]).numel() for each in loop.optimizer.state.values()),
            "averages": sum(average.numel() for average in loop.ema.averages),
        }
        (folder / f"counts-{os.environ['RANK']}.json").write_text(json.dumps(counts), encoding="utf-8")

    Trainer.run = counted  # type: ignore[method-assign, assignment]  # the same, and then counted


if __name__ == "__main__":
    count_into(Path(sys.argv[1]))
    sys.exit(run(sys.argv[2:]))
