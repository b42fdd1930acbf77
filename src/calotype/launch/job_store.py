"""Stores job records on disk: each in its job's folder, found by id from any process.

A folder of symbolic links in the user's state folder maps ids to job folders.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pydantic import ValidationError

from calotype.core.errors import CalotypeError, NotFoundError, Problem, RequestError, did_you_mean
from calotype.core.paths import atomic_write, check_name, state_dir
from calotype.launch.backend import LOGS, JobRecord, JobStatus
from calotype.spec.launch import LaunchSpec
from calotype.spec.launch_sections import MAX_JOB_NAME_LENGTH

FILE = "launch.json"
_CLAIM = ".claimed"
"""Marks the folder of a job that is being submitted."""
_log = logging.getLogger(__name__)


def _links() -> Path:
    return state_dir() / "launches"


def claim_folder(spec: LaunchSpec) -> LaunchSpec:
    """Reserve a unique id and a new folder for the spec; returns the spec with both."""
    links = _links()
    links.mkdir(parents=True, exist_ok=True)
    for number in range(1, 100_000):
        suffix = f"-{number}"
        name = spec.name[: MAX_JOB_NAME_LENGTH - len(suffix)].rstrip("-") + suffix
        unique = spec.changed(name=name)
        folder = Path(unique.folder).absolute()
        try:
            # Creating the link is atomic, also between processes.
            (links / name).symlink_to(folder, target_is_directory=True)
        except FileExistsError:
            continue
        claimed = False
        try:
            claimed = _claim(folder)
        finally:
            if not claimed:
                (links / name).unlink()
        if claimed:
            return unique.changed(work_folder=str(folder))
        if "{name}" not in spec.work_folder:
            why = "already holds a job" if os.access(folder, os.W_OK) else "belongs to another user"
            rule = f"{folder} {why}; use another folder, or {{name}} in it"
            raise RequestError([Problem("work_folder", rule, spec.work_folder)])
    raise RequestError([Problem("name", f"{spec.name!r} has been used 100000 times; use another", spec.name)])


def _claim(folder: Path) -> bool:
    """Claim a folder for this job alone: other users, who have links of their own, may submit there too."""
    # A job's environment may hold credentials: other users must not read it.
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        (folder / _CLAIM).touch(exist_ok=False)
    except (FileExistsError, PermissionError):
        return False
    if (folder / FILE).exists():
        (folder / _CLAIM).unlink()
        return False
    (folder / LOGS).mkdir(exist_ok=True)
    return True


def release_folder(spec: LaunchSpec) -> None:
    """Release the id of a job that was not submitted; the rendered files stay."""
    (_links() / spec.name).unlink(missing_ok=True)
    Path(spec.folder, _CLAIM).unlink(missing_ok=True)


def save_record(record: JobRecord) -> None:
    with atomic_write(Path(record.folder) / FILE, "w") as file:
        file.write(record.model_dump_json(indent=2) + "\n")
    Path(record.folder, _CLAIM).unlink(missing_ok=True)


def save_end(record: JobRecord, status: JobStatus) -> JobRecord:
    """Add the final status to a record and save it."""
    ended = record.model_copy(update={"ended": status})
    save_record(ended)
    return ended


def find(job_id: str) -> JobRecord:
    """The record of a job id, or of a job's folder."""
    if Path(job_id, FILE).is_file():
        return _read(Path(job_id))
    link = _links() / check_name("job", job_id)
    if not link.is_symlink():
        known = [record.id for record in all_records()]
        raise NotFoundError(f"no job {job_id!r}; {did_you_mean(job_id, known)}")
    if not (link / FILE).is_file():
        raise NotFoundError(f"the folder of job {job_id!r}, {link.readlink()}, no longer has a {FILE}")
    return _read(link.readlink())


def all_records() -> list[JobRecord]:
    """All records, newest first; skips jobs without a folder, and warns about damaged records."""
    records = []
    for link in _links().glob("*"):
        try:
            if (link / FILE).is_file():
                records.append(_read(link.readlink()))
        except (CalotypeError, OSError) as error:
            # One unreadable job must not hide the others.
            _log.warning("job %r is skipped: %s", link.name, error)
    return sorted(records, key=lambda record: record.submitted_at, reverse=True)


def _read(folder: Path) -> JobRecord:
    file = folder / FILE
    try:
        return JobRecord.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise CalotypeError(f"{file} is not a job record: {error.errors()[0]['msg']}") from None
