"""Records of jobs on disk: each in its job's folder, and found by its id from any process.

A folder of links under the user's state leads from ids to jobs, so that nobody has to remember where a job
works. Knows no back end.
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
"""In the folder of a job that is being handed in."""
_log = logging.getLogger(__name__)


def _links() -> Path:
    return state_dir() / "launches"


def claim_folder(spec: LaunchSpec) -> LaunchSpec:
    """The spec under an id that no other job has, with a new folder of its own; both exist afterwards."""
    links = _links()
    links.mkdir(parents=True, exist_ok=True)
    for number in range(1, 100_000):
        ending = f"-{number}"
        name = spec.name[: MAX_JOB_NAME_LENGTH - len(ending)].rstrip("-") + ending
        mine = spec.changed(name=name)
        folder = Path(mine.folder).absolute()
        try:
            # Making the link is what decides, also between processes.
            (links / name).symlink_to(folder, target_is_directory=True)
        except FileExistsError:
            continue
        took = False
        try:
            took = _took(folder)
        finally:
            if not took:
                (links / name).unlink()
        if took:
            return mine.changed(work_folder=str(folder))
        if "{name}" not in spec.work_folder:
            why = "holds a job already" if os.access(folder, os.W_OK) else "is somebody else's"
            rule = f"{folder} {why}; use another folder, or {{name}} in it"
            raise RequestError([Problem("work_folder", rule, spec.work_folder)])
    raise RequestError([Problem("name", f"{spec.name!r} has been used 100000 times; use another", spec.name)])


def _took(folder: Path) -> bool:
    """Whether a folder is ours alone now: others, who have links of their own, may hand in there too."""
    # What a job finds in its environment may be a way in: other users need not know.
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
    """Take back an id whose job was never handed in; the rendered files stay."""
    (_links() / spec.name).unlink(missing_ok=True)
    Path(spec.folder, _CLAIM).unlink(missing_ok=True)


def save_record(record: JobRecord) -> None:
    with atomic_write(Path(record.folder) / FILE, "w") as file:
        file.write(record.model_dump_json(indent=2) + "\n")
    Path(record.folder, _CLAIM).unlink(missing_ok=True)


def save_end(record: JobRecord, status: JobStatus) -> JobRecord:
    """The record with how its job ended, on disk too."""
    ended = record.model_copy(update={"ended": status})
    save_record(ended)
    return ended


def find(job_id: str) -> JobRecord:
    """The job of this id, or of a folder that holds one."""
    if Path(job_id, FILE).is_file():
        return _read(Path(job_id))
    link = _links() / check_name("job", job_id)
    if not link.is_symlink():
        known = [record.id for record in all_records()]
        raise NotFoundError(f"no job {job_id!r}; {did_you_mean(job_id, known)}")
    if not (link / FILE).is_file():
        raise NotFoundError(f"job {job_id!r} worked in {link.readlink()}, which has no {FILE} any more")
    return _read(link.readlink())


def all_records() -> list[JobRecord]:
    """The newest first; jobs whose folder is gone are left out, and those whose record is damaged told of."""
    found = []
    for link in _links().glob("*"):
        try:
            if (link / FILE).is_file():
                found.append(_read(link.readlink()))
        except (CalotypeError, OSError) as error:
            # One job that cannot be read hides no other.
            _log.warning("job %r is left out: %s", link.name, error)
    return sorted(found, key=lambda record: record.submitted_at, reverse=True)


def _read(folder: Path) -> JobRecord:
    file = folder / FILE
    try:
        return JobRecord.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise CalotypeError(f"{file} is no record of a job: {error.errors()[0]['msg']}") from None
