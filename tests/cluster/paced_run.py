"""A program: `calotype` with the words after the first, whose first rank stops after chosen steps until it
may go on. Every rank says its process id in the folder that the first word names.

torchrun ... -m tests.cluster.paced_run FOLDER train RECIPE KEY=VALUE...

`hold-N` in the folder asks for a stop after step N, before its checkpoint; `at-N` says that it has come. It
goes on when `hold-N` is removed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from calotype.cli.main import run
from calotype.train.callbacks.loggers import MetricsFile


def pace(folder: Path) -> None:
    """Arrange for the stops."""
    (folder / f"pid-{os.environ['RANK']}").write_text(str(os.getpid()), encoding="utf-8")
    real = MetricsFile.after_step

    def after_step(self: MetricsFile, step_metrics: Any, trainer: Any) -> None:
        real(self, step_metrics, trainer)
        hold = folder / f"hold-{step_metrics.step}"
        if hold.exists():
            (folder / f"at-{step_metrics.step}").touch()
        while hold.exists():
            time.sleep(0.02)

    MetricsFile.after_step = after_step  # type: ignore[method-assign]  # the same, and then held


if __name__ == "__main__":
    pace(Path(sys.argv[1]))
    sys.exit(run(sys.argv[2:]))
