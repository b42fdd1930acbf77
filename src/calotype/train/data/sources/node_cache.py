"""A size-limited cache of remote files on a node's disk, shared by all processes of the node.

A file is complete or absent: it is downloaded beside its final path and renamed when size and checksum match.
Readers hold a shared lock on a file; unlocked files are evicted, least recently used first. Locks end with
their process, so a killed process leaves nothing that blocks others.
"""

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from calotype.core.paths import check_name
from calotype.train.data.bad_samples import DataError
from calotype.train.data.file_lock import exclusive_lock, is_locked
from calotype.train.data.sources.http_download import fetch_to

GB = 10**9
_RESERVED, _PART = ".reserved", ".part"


@dataclass(frozen=True)
class RemoteFile:
    """What is known of a file before the download."""

    url: str
    size_bytes: int
    checksum: tuple[str, str] | None = None
    """The algorithm, as named in `hashlib`, and the hexadecimal digest."""

    @property
    def name(self) -> str:
        return check_name("url", urlsplit(self.url).path.rpartition("/")[2])

    def fault(self, file: Path) -> str | None:
        """Why `file` is not this file; None if it is."""
        size = file.stat().st_size
        if size != self.size_bytes:
            return f"{size} bytes arrived, the index says {self.size_bytes}"
        if self.checksum is None:
            return None
        algorithm, wanted = self.checksum
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, algorithm).hexdigest()
        return None if found == wanted else f"its {algorithm} is {found}, the index says {wanted}"


class Lease:
    """A cached file that cannot be evicted until the lease is closed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @classmethod
    def of(cls, path: Path, file: RemoteFile) -> Self | None:
        """Lease the file at `path`; None if it is missing or incomplete."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        status = os.fstat(descriptor)
        # It may have been removed between opening and locking.
        if not status.st_nlink or status.st_size != file.size_bytes:
            os.close(descriptor)
            return None
        # The access time records the use; the modification time stays, because tar indexes are keyed by it.
        os.utime(descriptor, ns=(time.time_ns(), status.st_mtime_ns))
        return cls(path, descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class NodeCache:
    """The cached files of one folder."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    def lease(self, file: RemoteFile) -> Lease:
        """Lease the local file, after downloading it if it is missing."""
        path = self.folder / hashlib.sha256(file.url.encode()).hexdigest()[:24] / file.name
        while (lease := Lease.of(path, file)) is None:
            with exclusive_lock(path):
                # Another process may have downloaded it while this one waited.
                if _size_of(path) != file.size_bytes:
                    self._fetch(file, path)
        return lease

    def _fetch(self, file: RemoteFile, path: Path) -> None:
        reserved = path.with_name(path.name + _RESERVED)
        with exclusive_lock(self.folder / "room"):
            self._make_room(file, path)
            with reserved.open("wb") as sparse_file:
                # A sparse file takes no disk space, and tells other processes how much will be taken.
                sparse_file.truncate(file.size_bytes)
        try:
            fetch_to(file.url, path, file.fault)
            os.utime(path, ns=(time.time_ns(), 0))
        finally:
            reserved.unlink(missing_ok=True)

    def _make_room(self, file: RemoteFile, path: Path) -> None:
        path.unlink(missing_ok=True)  # another file of that name, or an incomplete one
        leased = self._reserved_bytes(path)
        cached_files = self._cached_files()
        total = leased + sum(size for _, size, _ in cached_files)
        for _, size, oldest in sorted(cached_files):
            if total + file.size_bytes <= self.most_bytes:
                return
            if _evict(oldest):
                total -= size
        if total + file.size_bytes > self.most_bytes:
            rule = f"{self.most_bytes / GB:g} GB are too few: {total / GB:g} GB are in use on this node, and "
            rule += f"{file.name} takes {file.size_bytes / GB:g} more; raise it, or lower "
            rule += "data.num_workers, each of which holds a few"
            raise DataError("data.cache_gb", rule)

    def _cached_files(self) -> list[tuple[int, int, Path]]:
        """The last use, size and path of each cached file."""
        found = []
        for path in self.folder.glob("*/*"):
            if path.name.startswith(".") or path.suffix in (_RESERVED, _PART, ".validator"):
                continue
            status = path.stat()
            found.append((status.st_atime_ns, status.st_size, path))
        return found

    def _reserved_bytes(self, own_path: Path) -> int:
        """Bytes that downloads in progress will take; removes the remains of killed ones."""
        total = 0
        for reserved in self.folder.glob(f"*/*{_RESERVED}"):
            path = reserved.with_name(reserved.name.removesuffix(_RESERVED))
            # A file that exists is complete; only its reservation is not removed yet.
            if path == own_path or path.exists():
                continue
            if _is_being_fetched(path):
                with suppress(FileNotFoundError):
                    total += reserved.stat().st_size
            else:
                for left in (path.with_name(path.name + _PART), reserved):
                    left.unlink(missing_ok=True)
        return total


def _is_being_fetched(path: Path) -> bool:
    with is_locked(path) as free:
        return not free


def _size_of(path: Path) -> int | None:
    """None if it does not exist; another process may evict it at any moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _evict(path: Path) -> bool:
    """Remove a file unless it is being read; returns whether it was removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink()
        return True
    finally:
        os.close(descriptor)
