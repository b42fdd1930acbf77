"""From a spec to a running job with a record, the same way on every back end."""

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
    """The spec with what this process knows and another will not: where it is, and which Python it runs."""
    here = {} if spec.image else {"python": sys.executable, "directory": str(Path.cwd())}
    missing = {name: value for name, value in here.items() if getattr(spec, name) is None}
    return spec.changed(**missing, work_folder=str(Path(spec.work_folder).absolute()))


def submit(backend: Backend, spec: LaunchSpec) -> tuple[JobRecord, Rendered]:
    """Check, render and hand in; nothing is left behind by a job that was refused but its rendered files."""
    spec = settled(spec)
    # Without the cluster first: what cannot be rendered is wrong on any.
    backend.render(spec)
    problems = backend.check(spec)
    if problems:
        raise RequestError(problems)
    mine = claim_folder(spec)
    folder = Path(mine.work_folder)
    try:
        rendered = backend.render(mine)
        for name, text in rendered.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        handle = backend.submit(mine, folder, rendered)
    except BaseException:
        release_folder(mine)
        raise
    record = JobRecord(
        id=mine.name,
        backend=backend.name,
        handle=handle,
        folder=str(folder),
        spec=mine,
        files=tuple(rendered.files),
        submitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    try:
        save_record(record)
    except BaseException:
        # Nobody would find it again.
        with suppress(LaunchError):
            backend.cancel(record)
        release_folder(mine)
        raise
    return record, rendered


def status_of(backend: Backend, record: JobRecord) -> JobStatus:
    """How a job stands; its end is remembered, because back ends forget."""
    if record.ended:
        return record.ended
    status = backend.status(record)
    if status.state.is_over and status.state is not JobState.LOST:
        save_end(record, status)
    return status
