"""The artifact store: one folder per engine, written atomically, listed, checked and removed.

A folder named by its key holds `engine.json` and the files it lists. Names that begin with a dot are not
engines: locks, and remains of killed builds, which the next build with that key removes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import AfterValidator, ValidationError

from calotype.core.errors import CalotypeError, DiskFullError, NotFoundError, RequestError, did_you_mean
from calotype.core.paths import cache_dir, check_name, list_files
from calotype.core.progress import Progress, Silent
from calotype.engine.artifacts.cache_key import FORMAT, CacheKey, Frozen
from calotype.models.save import write_atomically

DESCRIPTION = "engine.json"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
State = Literal["ok", "damaged", "stale"]


def _safe(name: str) -> str:
    try:
        return check_name("files", name)
    except RequestError as error:
        raise ValueError(str(error)) from None


class StoredFile(Frozen):
    """One file of an engine."""

    name: Annotated[str, AfterValidator(_safe)]
    sha256: str
    size_bytes: int


class Description(Frozen):
    """The contents of `engine.json`."""

    format: int = FORMAT
    model: str
    """The architecture's name, for people."""
    target: CacheKey
    created: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class Artifact:
    """An engine's folder, as far as it is readable."""

    folder: Path
    description: Description | None = None
    unreadable: str | None = None
    """Reason for a missing description."""
    other_format: bool = False

    @property
    def key(self) -> str:
        return self.folder.name


class DamagedArtifactError(Exception):
    """A file of an engine has changed; the message names it."""


def engines_dir() -> Path:
    return cache_dir() / "engines"


def list_artifacts() -> list[Artifact]:
    """All engines in the order of their keys. Does not check their files."""
    root = engines_dir()
    if not root.is_dir():
        return []
    return [read(each) for each in sorted(root.iterdir()) if each.is_dir() and each.name[0] != "."]


def find_artifact(key: str) -> Artifact:
    """The engine with this key."""
    artifacts = {each.key: each for each in list_artifacts()}
    if key not in artifacts:
        raise NotFoundError(f"no engine {key[:60]!r} in {engines_dir()}; {did_you_mean(key[:60], artifacts)}")
    return artifacts[key]


def read(folder: Path) -> Artifact:
    try:
        text = (folder / DESCRIPTION).read_bytes()
        values = json.loads(text)
        if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
            return Artifact(
                folder, None, f"its format is {values['format']}, this version reads {FORMAT}", True
            )
        description = Description.model_validate_json(text)
    except OSError as error:
        return Artifact(folder, None, f"{DESCRIPTION} cannot be read: {error.strerror}")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return Artifact(
            folder, None, f"{DESCRIPTION} is not a description of an engine: {field} {first['msg']}"
        )
    except ValueError:
        return Artifact(folder, None, f"{DESCRIPTION} is not JSON")
    return Artifact(folder, description)


def check_files(artifact: Artifact) -> Description:
    """Check every file of an engine and return its description; raises DamagedArtifactError."""
    if artifact.description is None:
        raise DamagedArtifactError(artifact.unreadable)
    if artifact.description.target.key != artifact.key:
        raise DamagedArtifactError(
            f"its folder is named {artifact.key}, but it was built as {artifact.description.target.key}"
        )
    for file in artifact.description.files:
        try:
            current = _describe_file(artifact.folder, file.name)
        except OSError as error:
            raise DamagedArtifactError(f"{file.name} cannot be read: {error.strerror}") from error
        if current != file:
            raise DamagedArtifactError(f"{file.name} differs from the built file in size or sha256")
    return artifact.description


@contextmanager
def locked(key: str, progress: Progress | None = None) -> Iterator[None]:
    """Lock a key for one process at a time; the lock of a killed process is released."""
    with _explain_os_errors():
        lock = _lock(key)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            (progress or Silent()).describe(f"waiting for another process that uses engine {key}")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write(model: str, target: CacheKey, fill: Callable[[Path], None]) -> Artifact:
    """Store what `fill` writes to a folder, atomically. The caller holds the key's lock."""
    folder = engines_dir() / target.key
    with _explain_os_errors(), write_atomically(_discard(folder)) as partial:
        fill(partial)
        description = Description(
            model=model,
            target=target,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            files=tuple(_describe_file(partial, name) for name in list_files(partial)),
        )
        # Not synced to disk: an engine damaged by a power failure does not match its hashes.
        (partial / DESCRIPTION).write_text(description.model_dump_json(indent=1), "utf-8")
    return Artifact(folder, description)


def remove(key: str) -> None:
    """Remove an engine and the remains of its killed builds."""
    with locked(key), _explain_os_errors():
        _discard(engines_dir() / key)


def remove_unfinished() -> None:
    """Remove the remains of all killed builds; a running build keeps its folder."""
    for remains in engines_dir().glob(".*.*"):
        # Timeout is an OSError too, and not an error here.
        with (
            _explain_os_errors(),
            suppress(Timeout),
            _lock(remains.name.split(".")[1]).acquire(blocking=False),
        ):
            shutil.rmtree(remains)


def _lock(key: str) -> FileLock:
    locks = engines_dir() / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / key)


@contextmanager
def _explain_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "no partial build remains; free space there or set CALOTYPE_CACHE to another folder"
        kind = DiskFullError if error.errno in _DISK_FULL else CalotypeError
        raise kind(f"{engines_dir()} cannot be written to: {error.strerror or error}; {fix}") from error


def _discard(folder: Path) -> Path:
    """Remove the folder and its remains; returns its path."""
    if folder.exists():
        # Renamed first, so that no reader sees a partial engine.
        folder.rename(folder.with_name(f".{folder.name}.removed"))
    for remains in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(remains)
    return folder


def _describe_file(folder: Path, name: str) -> StoredFile:
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(name=name, sha256=digest, size_bytes=file.tell())
