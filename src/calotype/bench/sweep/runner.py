"""Runs every point of a sweep in a process of its own, round after round, and keeps a record of each.

Whatever becomes of a point is a record; those that are there already are not run again. Knows nothing of
what a point does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from calotype.bench.records.store import FILE, append, read
from calotype.bench.sweep.notebook import UNFINISHED, blank
from calotype.bench.sweep.parts import record_files
from calotype.core.fingerprint import fingerprint
from calotype.core.progress import Progress
from calotype.spec.measurement import Measurement
from calotype.spec.measurement_job import Point, Ticket, TrainJob
from calotype.train.checkpoint import StopSignal, claimed
from calotype.train.child_process import run_child

LOGS, PICTURES = "logs", "pictures"
_KILLED = "ended with code -9"

Ceiling = Callable[[str, str], float | None]
"""(device's name, precision) -> the TFLOP/s it was measured to reach; None if nobody did."""


def no_ceiling(_device: str, _precision: str) -> float | None:
    return None


def child_command(ticket: Path, measurement: Path, point: Point) -> list[str]:
    """The process of a point; several of them where a recipe wants several devices."""
    launcher: list[str] = []
    job = point.job
    if isinstance(job, TrainJob) and job.recipe.trainer.devices > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc-per-node={job.recipe.trainer.devices}"]
    return [sys.executable, *launcher, "-m", "calotype.bench.sweep.child", str(ticket), str(measurement)]


@dataclass(frozen=True)
class SweepPlan:
    """What to run, where its records go, and how."""

    points: Sequence[Point]
    folder: Path
    rounds: int = 1
    limit_s: float | None = None
    """A point that takes longer is given up."""
    models: Path | None = None
    retry_failed: bool = False
    """Run again what is recorded as failed."""
    ceiling: Ceiling = no_ceiling
    ceiling_source: Literal["given", "measured"] = "measured"
    command: Callable[[Path, Path, Point], Sequence[str]] | None = None
    """Starts the process of a point; ours if not said."""


@dataclass(frozen=True)
class SweepOutcome:
    measurements: list[Measurement]
    """Of the sweep's points and rounds, those there are, in the order of the points."""
    finished: bool
    """False after a request to stop; the same command goes on."""


def run_sweep(plan: SweepPlan, progress: Progress) -> SweepOutcome:
    """Measure what is not recorded yet, one round over all points after the other."""
    models = str(plan.models) if plan.models else None
    with claimed(plan.folder), StopSignal() as stop:
        todo = _todo(plan, recorded(plan))
        progress.start("points", len(todo))
        began = time.monotonic()
        for done, (point, number) in enumerate(todo):
            left_s = _left_s(time.monotonic() - began, done, len(todo))
            progress.describe(_label(point, number, plan, left_s))
            picture = plan.folder / PICTURES / f"{point.id}.webp"
            ticket = Ticket(point=point, round=number, models=models, picture=str(picture.absolute()))
            measurement = None if stop.requested else _measured(plan, ticket, stop)
            if measurement is None:
                return SweepOutcome(recorded(plan), finished=False)
            append(plan.folder / FILE, _under_its_ceiling(measurement, plan))
            progress.advance()
    return SweepOutcome(recorded(plan), finished=True)


def recorded(plan: SweepPlan) -> list[Measurement]:
    """What the folder and those of its parts hold of the plan, the last of each point and round."""
    files = record_files(plan.folder)
    last = {(one.id, one.round): one for file in files for one in read(file).measurements}
    wanted = [(point.id, number) for point in plan.points for number in range(1, plan.rounds + 1)]
    return [last[key] for key in wanted if key in last]


def _todo(plan: SweepPlan, done: list[Measurement]) -> list[tuple[Point, int]]:
    """Round by round, so that whatever drifts does not favour a point."""
    finished = {(one.id, one.round) for one in done if one.status == "ok" or not plan.retry_failed}
    wanted = [(point, number) for number in range(1, plan.rounds + 1) for point in plan.points]
    return [(point, number) for point, number in wanted if (point.id, number) not in finished]


def _measured(plan: SweepPlan, ticket: Ticket, stop: StopSignal) -> Measurement | None:
    """The measurement of one process, whatever became of it; None when told to stop."""
    log = plan.folder / LOGS / f"{ticket.point.id}-{ticket.round}.log"
    log.parent.mkdir(exist_ok=True)
    started_at, started = datetime.now(UTC), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        given, made = Path(place) / "ticket.json", Path(place) / "measurement.json"
        given.write_text(ticket.model_dump_json(), encoding="utf-8")
        command = (plan.command or child_command)(given, made, ticket.point)
        why = run_child(command, log, limit_s=plan.limit_s, stop=stop)
        found = _found(made)
    took = {"seconds_in_all": time.monotonic() - started}
    if found is not None and found.message != UNFINISHED:
        return found.model_copy(update={**took, "notes": [*found.notes, *([why] if why else [])]})
    if stop.requested:
        return None
    known = found or blank(ticket, fingerprint(), started_at)
    return known.model_copy(update={**took, "status": "error", "message": _explained(why, log)})


def _found(file: Path) -> Measurement | None:
    try:
        return Measurement.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _explained(why: str | None, log: Path) -> str:
    if why is None:
        return f"ended without a measurement; see {LOGS}/{log.name}"
    hint = "; it was killed, perhaps because main memory ran out" if why.startswith(_KILLED) else ""
    return f"{why}{hint}; see {LOGS}/{log.name}"


def _under_its_ceiling(measurement: Measurement, plan: SweepPlan) -> Measurement:
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
