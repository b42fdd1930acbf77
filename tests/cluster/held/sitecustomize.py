"""Python reads this before a program if its folder is on the path: `calotype train` then waits after a step.

TEST_HOLD_AFTER="3,6" lets a job's first start wait after step 3 and its second after step 6, until it is told
to stop. So a test knows where it was interrupted, by whatever interrupts it.
"""

import os
import time

_holds = [int(step) for step in os.environ.get("TEST_HOLD_AFTER", "").split(",") if step]
_start = int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def _hold(held_step: int) -> None:
    from typing import Any

    from calotype.train.callbacks import loggers
    from calotype.train.checkpoint import StopSignal

    stops: list[StopSignal] = []
    enter = StopSignal.__enter__

    def noted(self: StopSignal) -> StopSignal:
        stops.append(self)
        return enter(self)

    StopSignal.__enter__ = noted  # type: ignore[method-assign, assignment]
    real = loggers.MetricsFile.after_step

    def held(self: Any, step_metrics: Any, trainer: Any) -> None:
        real(self, step_metrics, trainer)
        while step_metrics.step == held_step and not stops[0].requested:
            time.sleep(0.02)

    loggers.MetricsFile.after_step = held  # type: ignore[method-assign]


if os.environ.get("RANK") == "0" and _start < len(_holds):
    _hold(_holds[_start])
