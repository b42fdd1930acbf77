"""Submits a spec as a job with a record, the same way on every backend."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from calotype.core.errors import RequestError
from calotype.launch.backend import Backend, JobRecord, JobState, JobStatus, LaunchError, Rendered
from calotype.launch.job_store import claim_folder, release_folder, save_end, save_record
from calotype.spec.launch import LaunchSpec


def settled(spec: LaunchSpec) -> LaunchSpec:
    """Fill in the spec's working directory and Python interpreter from this process."""
    defaults = {} if spec.image else {"python": sys.executable, "directory": str(Path.cwd())}
    missing = {name: value for name, value in defaults.items() if getattr(spec, name) is None}
    return spec.changed(**missing, work_folder=str(Path(spec.work_folder).absolute()))


def submit(backend: Backend, spec: LaunchSpec) -> tuple[JobRecord, Rendered]:
    """Check, render and submit; a refused job leaves only its rendered files."""
    spec = settled(spec)
    # Offline first: a spec that cannot be rendered is wrong on any cluster.
    backend.render(spec)
    problems = backend.check(spec)
    if problems:
        raise RequestError(problems)
    claimed = claim_folder(spec)
    folder = Path(claimed.work_folder)
    try:
        rendered = backend.render(claimed)
        for name, text in rendered.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        handle = backend.submit(claimed, folder, rendered)
    except BaseException:
        release_folder(claimed)
        raise
    record = JobRecord(
        id=claimed.name,
        backend=backend.name,
        handle=handle,
        folder=str(folder),
        spec=claimed,
        files=tuple(rendered.files),
        submitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    try:
        save_record(record)
    except BaseException:
        # Without a record, the job could not be found again.
        with suppress(LaunchError):
            backend.cancel(record)
        release_folder(claimed)
        raise
    return record, rendered


def status_of(backend: Backend, record: JobRecord) -> JobStatus:
    """The status of a job; a final status is saved, because backends forget ended jobs."""
    if record.ended:
        return record.ended
    status = backend.status(record)
    if status.state.is_over and status.state is not JobState.LOST:
        save_end(record, status)
    return status
