"""Saves a measurement while it is taken, so that a killed process leaves a record."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from calotype.core.fingerprint import Fingerprint
from calotype.core.paths import atomic_write
from calotype.spec.bench_job import InferenceJob, Ticket
from calotype.spec.records.measurement import Measurement

UNFINISHED = "ended before it was done"


def blank(ticket: Ticket, machine: Fingerprint, started_at: datetime) -> Measurement:
    """Create a measurement that holds only the request."""
    job = ticket.point.job
    request: dict[str, Any] = (
        {"model": job.model, "preset": job.preset, "request": job.request.as_dict()}
        if isinstance(job, InferenceJob)
        else {
            "model": job.recipe.model.base,
            "precision": job.recipe.model.precision,
            "recipe": job.recipe.model_dump(mode="json"),
            "devices": job.recipe.trainer.devices,
            "nodes": job.recipe.trainer.nodes,
        }
    )
    return Measurement(
        id=ticket.point.id,
        point=ticket.point.name,
        round=ticket.round,
        kind=job.kind,
        system=job.system,
        settings=ticket.point.settings,
        device=_device(job.device, machine),
        fingerprint={"machine": machine.as_dict()},
        commit=machine.commit,
        modified=machine.modified,
        command=ticket.point.command,
        started_at=started_at,
        status="error",
        message=UNFINISHED,
        **request,
    )


def _device(requested: str | None, machine: Fingerprint) -> str:
    """Guess the device's name until torch reports it."""
    gpus = [] if requested == "cpu" else [str(gpu.name) for gpu in machine.gpus]
    return next(iter(gpus), f"CPU {machine.cpu.model}")


class PartialRecord:
    """A measurement in progress."""

    def __init__(self, measurement: Measurement, file: Path | None) -> None:
        """Without a `file` nothing is saved: one process of a run writes the record for all."""
        self.measurement, self._file = measurement, file

    def note(self, **fields: Any) -> None:
        """Update fields of the measurement."""
        self.measurement = self.measurement.model_copy(update=fields)

    def remark(self, text: str) -> None:
        self.note(notes=[*self.measurement.notes, text])

    def save(self) -> None:
        """Write the current state to the file."""
        if self._file is None:
            return
        checked = Measurement.model_validate(self.measurement.model_dump())
        with atomic_write(self._file, "w") as out:
            out.write(checked.model_dump_json())
