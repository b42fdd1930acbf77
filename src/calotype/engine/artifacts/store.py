"""The folders engines are kept in: written whole, listed, checked and removed. Knows nothing of compiling.

A folder named by its key holds `engine.json` and the files it lists. What begins with a dot is not an engine:
locks, and what a killed build left behind, which the next one with that key removes.
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
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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
    """What an engine's folder says of itself."""

    format: int = FORMAT
    model: str
    """The architecture's name, for people."""
    target: CacheKey
    created: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class Artifact:
    """A folder that should be an engine, as far as it can be read."""

    folder: Path
    description: Description | None = None
    unreadable: str | None = None
    """Why there is no description."""
    other_format: bool = False

    @property
    def key(self) -> str:
        return self.folder.name


class DamagedArtifactError(Exception):
    """A file of an engine is not what it was; says which."""


def engines_dir() -> Path:
    return cache_dir() / "engines"


def list_artifacts() -> list[Artifact]:
    """All that are kept, in the order of their keys. Files are not looked into."""
    root = engines_dir()
    if not root.is_dir():
        return []
    return [read(place) for place in sorted(root.iterdir()) if place.is_dir() and place.name[0] != "."]


def find_artifact(key: str) -> Artifact:
    """The one with this key."""
    kept = {one.key: one for one in list_artifacts()}
    if key not in kept:
        raise NotFoundError(f"no engine {key[:60]!r} in {engines_dir()}; {did_you_mean(key[:60], kept)}")
    return kept[key]


def read(folder: Path) -> Artifact:
    try:
        text = (folder / DESCRIPTION).read_bytes()
        written = json.loads(text)
        if isinstance(written, dict) and written.get("format", FORMAT) != FORMAT:
            return Artifact(folder, None, f"its format is {written['format']}, this is {FORMAT}", True)
        description = Description.model_validate_json(text)
    except OSError as error:
        return Artifact(folder, None, f"{DESCRIPTION} cannot be read: {error.strerror}")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return Artifact(
            folder, None, f"{DESCRIPTION} is not a description of an engine: {place} {first['msg']}"
        )
    except ValueError:
        return Artifact(folder, None, f"{DESCRIPTION} is not JSON")
    return Artifact(folder, description)


def check_files(one: Artifact) -> Description:
    """The description of an engine whose every file is the one that was built; else a DamagedError."""
    if one.description is None:
        raise DamagedArtifactError(one.unreadable)
    if one.description.target.key != one.key:
        raise DamagedArtifactError(
            f"its folder is named {one.key}, it was built as {one.description.target.key}"
        )
    for file in one.description.files:
        try:
            found = _stored(one.folder, file.name)
        except OSError as error:
            raise DamagedArtifactError(f"{file.name} cannot be read: {error.strerror}") from error
        if found != file:
            raise DamagedArtifactError(f"{file.name} is not what was built: its size or sha256 differs")
    return one.description


@contextmanager
def locked(key: str, progress: Progress | None = None) -> Iterator[None]:
    """One process at a time for one key; a killed one's lock is free."""
    with _explained():
        lock = _lock(key)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            (progress or Silent()).describe(f"waiting for another process to be done with engine {key}")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write(model: str, target: CacheKey, fill: Callable[[Path], None]) -> Artifact:
    """Keep what `fill` puts into a folder, under the target's key: all of it or nothing. Under its lock."""
    folder = engines_dir() / target.key
    with _explained(), write_atomically(_discarded(folder)) as partial:
        fill(partial)
        description = Description(
            model=model,
            target=target,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            files=tuple(_stored(partial, name) for name in list_files(partial)),
        )
        # Not synced to disk: an engine that lost its contents with the power does not match its hashes.
        (partial / DESCRIPTION).write_text(description.model_dump_json(indent=1), "utf-8")
    return Artifact(folder, description)


def remove(key: str) -> None:
    """Remove an engine, and what killed builds of it left behind."""
    with locked(key), _explained():
        _discarded(engines_dir() / key)


def remove_unfinished() -> None:
    """Remove what killed builds left behind, whatever their key; a build that goes on keeps its folder."""
    for left in engines_dir().glob(".*.*"):
        # Being busy is an OSError too, and none to explain.
        with _explained(), suppress(Timeout), _lock(left.name.split(".")[1]).acquire(blocking=False):
            shutil.rmtree(left)


def _lock(key: str) -> FileLock:
    locks = engines_dir() / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / key)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "nothing half-built stays; make room there or set CALOTYPE_CACHE to another folder"
        kind = DiskFullError if error.errno in _NO_ROOM else CalotypeError
        raise kind(f"{engines_dir()} cannot be written to: {error.strerror or error}; {fix}") from error


def _discarded(folder: Path) -> Path:
    """The folder's name, free again."""
    if folder.exists():
        # Renamed first: nobody is to see half an engine.
        folder.rename(folder.with_name(f".{folder.name}.removed"))
    for left in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left)
    return folder


def _stored(folder: Path, name: str) -> StoredFile:
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(name=name, sha256=digest, size_bytes=file.tell())
