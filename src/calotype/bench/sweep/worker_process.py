"""The process of one point: reads its ticket, measures, and writes one measurement for every outcome.

    python -m calotype.bench.sweep.worker_process TICKET.json MEASUREMENT.json [...]

Several points share a loaded model. The process ends after the first failure; its parent runs the rest in
another process.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

from calotype.bench.inference.measure import measure_inference
from calotype.bench.inference.model_cache import LoadedModels
from calotype.bench.sweep.device_clocks import host_peak_bytes
from calotype.bench.sweep.partial_record import PartialRecord, blank
from calotype.bench.training.measure import measure_training
from calotype.core.errors import CalotypeError, DoesNotFitError
from calotype.core.fingerprint import fingerprint
from calotype.engine.device import is_out_of_memory
from calotype.engine.torch_info import torch_facts
from calotype.spec.bench_job import InferenceJob, Ticket
from calotype.spec.records.measurement import Status


def main(*files: Path) -> None:
    """Measure one point after the other; only an unreadable ticket raises."""
    keeper = LoadedModels()
    for ticket_file, measurement_file in zip(files[::2], files[1::2], strict=True):
        if not _measured(ticket_file, measurement_file, keeper):
            return
        if not keeper.is_clean():
            print("memory besides the weights stayed allocated; the next point runs in a new process")
            return


def _measured(ticket_file: Path, measurement_file: Path, keeper: LoadedModels) -> bool:
    """Measure one point; return whether it succeeded."""
    at = datetime.now(UTC)
    ticket = Ticket.model_validate_json(ticket_file.read_bytes())
    writes_record = os.environ.get("RANK", "0") == "0"
    record = PartialRecord(blank(ticket, fingerprint(), at), measurement_file if writes_record else None)
    record.save()
    try:
        _measure(ticket, record, keeper)
        record.note(status="ok", message=None)
    # A failing point must still produce a record.
    except Exception as error:
        traceback.print_exc()
        status, message = verdict(error)
        record.note(status=status, message=message)
    record.note(host_peak_bytes=host_peak_bytes())
    # Querying the device may fail after a failed measurement.
    record.save()
    gc.collect()
    torch.cuda.empty_cache()
    record.note(fingerprint={**record.measurement.fingerprint, "torch": _facts()})
    record.save()
    return record.measurement.status == "ok"


@cache
def _facts() -> dict[str, Any]:
    """Return torch's facts, which are the same for all points of a process."""
    return asdict(torch_facts())


def _measure(ticket: Ticket, record: PartialRecord, keeper: LoadedModels) -> None:
    models = Path(ticket.models) if ticket.models else None
    job = ticket.point.job
    if isinstance(job, InferenceJob):
        picture = Path(ticket.picture) if ticket.picture else None
        measure_inference(job, record, keeper, models=models, picture=picture)
    else:
        measure_training(job, record, models=models)


def verdict(error: Exception) -> tuple[Status, str]:
    """Return the status and the one-line message for an error."""
    words = " ".join(str(error).split())
    ours = isinstance(error, CalotypeError)
    short = isinstance(error, DoesNotFitError | MemoryError) or is_out_of_memory(error)
    return ("oom" if short else "error"), (words if ours else f"{type(error).__name__}: {words}")[:2000]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
