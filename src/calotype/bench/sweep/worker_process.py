"""The process of one point: reads its ticket, measures, writes one measurement, whatever became of it.

    python -m calotype.bench.sweep.worker_process TICKET.json MEASUREMENT.json [...]

Of several points, which share what is loaded, it ends after the first that fails: whoever started it has the
rest measured by another. Knows nothing of sweeps.
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
    """Measure one point after the other; only a ticket that cannot be read raises."""
    keeper = LoadedModels()
    for ticket_file, measurement_file in zip(files[::2], files[1::2], strict=True):
        if not _measured(ticket_file, measurement_file, keeper):
            return
        if not keeper.is_clean():
            print("more than weights stayed on the device: the next point needs a process of its own")
            return


def _measured(ticket_file: Path, measurement_file: Path, keeper: LoadedModels) -> bool:
    """Whether it went well."""
    at = datetime.now(UTC)
    ticket = Ticket.model_validate_json(ticket_file.read_bytes())
    speaks = os.environ.get("RANK", "0") == "0"
    book = PartialRecord(blank(ticket, fingerprint(), at), measurement_file if speaks else None)
    book.save()
    try:
        _measure(ticket, book, keeper)
        book.note(status="ok", message=None)
    # Whatever a point breaks, it is a row of its own.
    except Exception as error:
        traceback.print_exc()
        status, message = verdict(error)
        book.note(status=status, message=message)
    book.note(host_peak_bytes=host_peak_bytes())
    # Asking the device about itself may fail where the measuring did.
    book.save()
    gc.collect()
    torch.cuda.empty_cache()
    book.note(fingerprint={**book.measurement.fingerprint, "torch": _facts()})
    book.save()
    return book.measurement.status == "ok"


@cache
def _facts() -> dict[str, Any]:
    """The same for all points of a process."""
    return asdict(torch_facts())


def _measure(ticket: Ticket, book: PartialRecord, keeper: LoadedModels) -> None:
    models = Path(ticket.models) if ticket.models else None
    job = ticket.point.job
    if isinstance(job, InferenceJob):
        picture = Path(ticket.picture) if ticket.picture else None
        measure_inference(job, book, keeper, models=models, picture=picture)
    else:
        measure_training(job, book, models=models)


def verdict(error: Exception) -> tuple[Status, str]:
    """What an error makes of a measurement, in one line."""
    words = " ".join(str(error).split())
    ours = isinstance(error, CalotypeError)
    short = isinstance(error, DoesNotFitError | MemoryError) or is_out_of_memory(error)
    return ("oom" if short else "error"), (words if ours else f"{type(error).__name__}: {words}")[:2000]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
