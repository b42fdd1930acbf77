"""Runs every point of a sweep, round after round, and records each.

A point runs in its own process, or after others in theirs if they can share a loaded model. Every outcome is
a record; recorded points are not run again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from calotype.bench.inference.model_cache import shared_by
from calotype.bench.records.store import append, read
from calotype.bench.sweep.partition import record_files
from calotype.bench.sweep.subprocess_runner import Command, run_points
from calotype.core.progress import Progress
from calotype.spec.bench_job import Point, Ticket, TrainJob
from calotype.spec.records.measurement import FILE, Measurement
from calotype.train.checkpoint import StopSignal, claimed

LOGS, PICTURES = "logs", "pictures"

DevicePeak = Callable[[str, str], float | None]
"""(device's name, precision) -> the measured peak in TFLOP/s; None if unknown."""


def no_device_peak(_device: str, _precision: str) -> float | None:
    return None


def child_command(ticket: Path, measurement: Path, point: Point) -> list[str]:
    """Return the command of a point's process, or of several processes for several devices."""
    launcher: list[str] = []
    job = point.job
    if isinstance(job, TrainJob) and job.recipe.trainer.devices > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc-per-node={job.recipe.trainer.devices}"]
    return [
        sys.executable,
        *launcher,
        "-m",
        "calotype.bench.sweep.worker_process",
        str(ticket),
        str(measurement),
    ]


@dataclass(frozen=True)
class SweepPlan:
    """The points of a sweep, the output folder and the options of the run."""

    points: Sequence[Point]
    folder: Path
    rounds: int = 1
    limit_s: float | None = None
    """Time limit of a point."""
    models: Path | None = None
    retry_failed: bool = False
    """Run points again that are recorded as failed."""
    ceiling: DevicePeak = no_device_peak
    ceiling_source: Literal["given", "measured"] = "measured"
    keep_loaded: bool = False
    """Run points of one model in one process, until one of them fails."""
    pictures: bool = True
    """Whether to keep the first image of each point, for contact sheets."""
    command: Command | None = None
    """Command of a point's process; `child_command` by default."""


@dataclass(frozen=True)
class SweepOutcome:
    measurements: list[Measurement]
    """The recorded points and rounds of the sweep, in the order of the points."""
    finished: bool
    """False after a request to stop; the same command resumes the sweep."""


def run_sweep(plan: SweepPlan, progress: Progress) -> SweepOutcome:
    """Measure the points that are not recorded yet, one round over all points after the other."""
    with claimed(plan.folder), StopSignal() as stop:
        pending = _pending(plan, recorded(plan))
        progress.start("points", len(pending))
        began, done = time.monotonic(), 0

        def describe() -> None:
            if done < len(pending):
                left_s = _left_s(time.monotonic() - began, done, len(pending))
                progress.describe(_label(*pending[done], plan, left_s))

        def keep(measurement: Measurement) -> None:
            nonlocal done
            append(plan.folder / FILE, _with_device_peak(measurement, plan))
            done += 1
            progress.advance()
            describe()

        describe()
        while done < len(pending):
            before = done
            if not stop.requested:
                tickets = [_ticket(plan, *each) for each in _sharing_process(plan, pending[done:])]
                run_points(
                    tickets, plan.command or child_command, _log(plan, tickets[0]), keep, stop, plan.limit_s
                )
            if done == before:
                return SweepOutcome(recorded(plan), finished=False)
    return SweepOutcome(recorded(plan), finished=True)


def _ticket(plan: SweepPlan, point: Point, number: int) -> Ticket:
    picture = (plan.folder / PICTURES / f"{point.id}.webp").absolute() if plan.pictures else None
    models = str(plan.models) if plan.models else None
    return Ticket(point=point, round=number, models=models, picture=str(picture) if picture else None)


def _sharing_process(plan: SweepPlan, pending: Sequence[tuple[Point, int]]) -> Sequence[tuple[Point, int]]:
    """Return the next point and those directly after it that can run in its process."""
    shared = shared_by(pending[0][0].job) if plan.keep_loaded else None
    if shared is None:
        return pending[:1]
    return list(takewhile(lambda each: shared_by(each[0].job) == shared, pending))


def _log(plan: SweepPlan, ticket: Ticket) -> Path:
    log = plan.folder / LOGS / f"{ticket.point.id}-{ticket.round}.log"
    log.parent.mkdir(exist_ok=True)
    return log


def recorded(plan: SweepPlan) -> list[Measurement]:
    """Return the last record of each point and round of the plan, from the folder and its parts."""
    files = record_files(plan.folder)
    last = {(one.id, one.round): one for file in files for one in read(file).measurements}
    runs = [(point.id, number) for point in plan.points for number in range(1, plan.rounds + 1)]
    return [last[key] for key in runs if key in last]


def _pending(plan: SweepPlan, done: list[Measurement]) -> list[tuple[Point, int]]:
    """Return the points to run, round by round, so that drift does not favor a point."""
    finished = {(one.id, one.round) for one in done if one.status == "ok" or not plan.retry_failed}
    points = list(plan.points)
    if plan.keep_loaded:
        # Points that can share a process come first, so that the others do not separate them.
        points.sort(key=lambda point: shared_by(point.job) is None)
    runs = [(point, number) for number in range(1, plan.rounds + 1) for point in points]
    return [(point, number) for point, number in runs if (point.id, number) not in finished]


def _with_device_peak(measurement: Measurement, plan: SweepPlan) -> Measurement:
    work, precision = measurement.work, measurement.precision
    if work is None or precision is None or work.ceiling_tflops is not None:
        return measurement
    most = plan.ceiling(measurement.device, precision)
    if most is None:
        return measurement
    return measurement.model_copy(update={"work": work.under(most, plan.ceiling_source)})


def _left_s(spent_s: float, done: int, total: int) -> float | None:
    return spent_s / done * (total - done) if done else None


def _label(point: Point, round_number: int, plan: SweepPlan, left_s: float | None) -> str:
    which = f" (round {round_number} of {plan.rounds})" if plan.rounds > 1 else ""
    left = "" if left_s is None else f", about {_duration(left_s)} left"
    return f"{point.name}{which}{left}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
