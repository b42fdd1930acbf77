"""Starts the process of one or several points and collects their measurements.

Every started point yields a measurement: the process's own, or one that records how the process ended.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from calotype.bench.sweep.partial_record import UNFINISHED, blank
from calotype.core.fingerprint import fingerprint
from calotype.spec.bench_job import Point, Ticket
from calotype.spec.records.measurement import Measurement
from calotype.train.checkpoint import StopSignal
from calotype.train.child_process import run_child

Command = Callable[[Path, Path, Point], Sequence[str]]
"""Returns the command that measures a ticket into a file; further pairs of files may follow it."""
Keep = Callable[[Measurement], None]
_KILLED = "ended with code -9"


def run_points(
    tickets: Sequence[Ticket],
    command: Command,
    log: Path,
    keep: Keep,
    stop: StopSignal,
    limit_s: float | None,
) -> None:
    """Pass the measurements of one process to `keep`: the first point and the others it reaches."""
    with tempfile.TemporaryDirectory() as folder:
        watch = _Watch(tickets, Path(folder), keep)
        words = [
            *command(*watch.files[0], tickets[0].point),
            *(str(f) for pair in watch.files[1:] for f in pair),
        ]
        failure = run_child(words, log, limit_s=limit_s, stop=stop, got_on=watch.got_on)
        watch.ended(failure, log, stop)


class _Watch:
    """Tracks the progress of a process: a point is complete once the next one has started."""

    def __init__(self, tickets: Sequence[Ticket], folder: Path, keep: Keep) -> None:
        self._tickets, self._keep, self._at = tickets, keep, 0
        self._began_at, self._began = datetime.now(UTC), time.monotonic()
        self.files = [(folder / f"{n}-ticket.json", folder / f"{n}.json") for n in range(len(tickets))]
        for ticket, (given, _) in zip(tickets, self.files, strict=True):
            given.write_text(ticket.model_dump_json(), encoding="utf-8")

    def got_on(self) -> bool:
        """Pass on complete measurements; return whether there were any."""
        before = self._at
        while self._at + 1 < len(self.files) and self.files[self._at + 1][1].exists():
            measurement = _read(self.files[self._at][1])
            assert measurement, "a process starts the next point after writing the last"
            self._hand_over(measurement)
        return self._at > before

    def ended(self, failure: str | None, log: Path, stop: StopSignal) -> None:
        """Pass on the current point, unless a requested stop interrupted it."""
        self.got_on()
        found = _read(self.files[self._at][1])
        if found is not None and found.message != UNFINISHED:
            self._hand_over(
                found.model_copy(update={"notes": [*found.notes, *([failure] if failure else [])]})
            )
        elif not stop.requested:
            known = found or blank(self._tickets[self._at], fingerprint(), self._began_at)
            self._hand_over(known.model_copy(update={"status": "error", "message": _explain(failure, log)}))

    def _hand_over(self, measurement: Measurement) -> None:
        now = time.monotonic()
        self._keep(measurement.model_copy(update={"seconds_in_all": now - self._began}))
        self._at, self._began_at, self._began = self._at + 1, datetime.now(UTC), now


def _read(file: Path) -> Measurement | None:
    try:
        return Measurement.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _explain(failure: str | None, log: Path) -> str:
    where = f"{log.parent.name}/{log.name}"
    if failure is None:
        return f"ended without a measurement; see {where}"
    hint = "; it was killed, possibly because main memory ran out" if failure.startswith(_KILLED) else ""
    return f"{failure}{hint}; see {where}"
