"""The process of a point, or of several that follow each other, watched until it ends.

Every point that was begun comes to a measurement: the process's own, or one that says how it ended. Knows
nothing of what a point does, nor of where measurements go.
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
"""Measures what a ticket says into a file; more pairs of tickets and files may follow it."""
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
    """Hand what one process measures to `keep`: the first point, and as many of the others as it gets to."""
    with tempfile.TemporaryDirectory() as place:
        watch = _Watch(tickets, Path(place), keep)
        words = [
            *command(*watch.files[0], tickets[0].point),
            *(str(f) for pair in watch.files[1:] for f in pair),
        ]
        why = run_child(words, log, limit_s=limit_s, stop=stop, got_on=watch.got_on)
        watch.ended(why, log, stop)


class _Watch:
    """How far a process has come: where it has begun the next point, the one before is whole."""

    def __init__(self, tickets: Sequence[Ticket], place: Path, keep: Keep) -> None:
        self._tickets, self._keep, self._at = tickets, keep, 0
        self._began_at, self._began = datetime.now(UTC), time.monotonic()
        self.files = [(place / f"{n}-ticket.json", place / f"{n}.json") for n in range(len(tickets))]
        for ticket, (given, _) in zip(tickets, self.files, strict=True):
            given.write_text(ticket.model_dump_json(), encoding="utf-8")

    def got_on(self) -> bool:
        """Hand over what is whole; whether there was anything."""
        before = self._at
        while self._at + 1 < len(self.files) and self.files[self._at + 1][1].exists():
            found = _found(self.files[self._at][1])
            assert found, "a process goes on to the next point once it has written the last"
            self._hand_over(found)
        return self._at > before

    def ended(self, why: str | None, log: Path, stop: StopSignal) -> None:
        """Hand over the point that it was at, unless it was told to stop there."""
        self.got_on()
        found = _found(self.files[self._at][1])
        if found is not None and found.message != UNFINISHED:
            self._hand_over(found.model_copy(update={"notes": [*found.notes, *([why] if why else [])]}))
        elif not stop.requested:
            known = found or blank(self._tickets[self._at], fingerprint(), self._began_at)
            self._hand_over(known.model_copy(update={"status": "error", "message": _explained(why, log)}))

    def _hand_over(self, measurement: Measurement) -> None:
        now = time.monotonic()
        self._keep(measurement.model_copy(update={"seconds_in_all": now - self._began}))
        self._at, self._began_at, self._began = self._at + 1, datetime.now(UTC), now


def _found(file: Path) -> Measurement | None:
    try:
        return Measurement.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _explained(why: str | None, log: Path) -> str:
    where = f"{log.parent.name}/{log.name}"
    if why is None:
        return f"ended without a measurement; see {where}"
    hint = "; it was killed, perhaps because main memory ran out" if why.startswith(_KILLED) else ""
    return f"{why}{hint}; see {where}"
