"""A queue's folder: a database, and image files that its rows name.

A file is on disk before a row names it, and is removed when no row does.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from filelock import FileLock, Timeout

from calotype.core.errors import NotFoundError
from calotype.serve.queue.blob_store import BlobStore, DamagedFileError, blob_name
from calotype.serve.queue.clock import Clock
from calotype.serve.queue.database import Database, Work
from calotype.serve.queue.generated_image import GeneratedImage
from calotype.serve.queue.health import QueueHealth, rewrite_version
from calotype.serve.queue.open_database import is_damage, open_database, unavailable
from calotype.serve.queue.replacement import PICTURES, damage_notices
from calotype.serve.queue.repository import history, uploads
from calotype.serve.queue.repository.rows import Counts, counted
from calotype.serve.queue.repository.uploads import Upload
from calotype.serve.service import DamagedPictureError, UnavailableError
from calotype.spec.job import JobPicture, PictureFile

_log = logging.getLogger(__name__)

LOCK = ".lock"
_HASHED_INLINE = 2**18

T = TypeVar("T")


class Store(ABC):
    """A folder locked by this server. If the disk refuses, methods raise UnavailableError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with _refusals(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_folder(folder)
            try:
                connection = open_database(folder)
            except BaseException:
                self._lock.release()
                raise
            self._files = BlobStore(folder / PICTURES)
            try:
                self._recover(connection)
                self._health = QueueHealth(folder)
                self._database = Database(connection, counted)
            except BaseException:
                connection.close()
                self._lock.release()
                raise
        self._closed, self._saved = False, False
        self.notices = damage_notices(folder)
        """Notices for people about damaged databases."""
        self.check_wanted = asyncio.Event()
        """Set when the disk has refused a write: `check_disk` finds out whether it refuses all."""

    @property
    def counts(self) -> Counts:
        """Numbers of queued and running jobs, as committed."""
        return self._database.seen

    @property
    def broken(self) -> str | None:
        """Why no job is accepted before the next start, or None."""
        return self._health.broken

    @property
    def refusal(self) -> str | None:
        """Why no job is accepted now, or None."""
        return self._health.broken or self._health.refusal

    async def check_disk(self) -> None:
        """Check that the database is still the file in the folder, and that the disk accepts writes."""
        if self._closed:
            return
        try:
            await asyncio.to_thread(self._health.try_file)
            await self._database.call(rewrite_version, durable=False)
        except (sqlite3.Error, OSError) as error:
            self._health.note_disk(error)
            self._note_error(error)
            self.check_wanted.clear()
        else:
            self._health.note_disk(None)
        with suppress(UnavailableError):
            await asyncio.to_thread(self._health.check_file)
        await self._save_detached()
        self.notices = await asyncio.to_thread(damage_notices, self.folder)

    async def check_database(self) -> None:
        """Check the database's file for damage; reads all of it."""
        await asyncio.to_thread(self._health.quick_check)

    async def _save_detached(self, *, again: bool = False) -> None:
        if self._health.detached and (again or not self._saved):
            try:
                await self._database.call(self._health.save_detached, writes=False)
            except (sqlite3.Error, OSError) as error:
                _log.error(
                    "the jobs of the database that is no longer in its folder are not copied: %s", error
                )
            else:
                self._saved = True

    @abstractmethod
    def _recover(self, connection: sqlite3.Connection) -> None:
        """Repair the state that a crash left, before the first call."""

    async def close(self) -> None:
        """Close the database and release the folder to the next server."""
        self._closed = True
        self._health.stop()
        with suppress(UnavailableError):
            await asyncio.to_thread(self._health.check_file)
        await self._save_detached(again=True)
        await asyncio.to_thread(self._database.close)
        self._lock.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _with_files(self, files: Mapping[str, bytes], work: Work[T]) -> T:
        """Write files, then run `work`, which references them; unreferenced files are removed again."""
        if not files:
            return await self._call(work)
        unused = list(files)
        try:
            with self._files.contains(files):
                with _refusals(self.folder):
                    try:
                        await asyncio.to_thread(self._files.write, files)
                    except OSError as error:
                        self._note_error(error)
                        raise
                answer, unused = await self._call(lambda c: (work(c), history.unused(c, files)))
            return answer
        finally:
            await self._remove_unused(unused)

    async def _remove_unused(self, names: Sequence[str]) -> None:
        """Remove files in the database's thread, so that none becomes referenced in between."""

        def remove(connection: sqlite3.Connection) -> None:
            self._files.remove(history.unused(connection, names))

        if names:
            await self._read(remove)

    async def _read_file(self, sha256: str, what: str) -> bytes:
        """A file's content; `what` names it in the error if it is missing or damaged."""
        try:
            return await asyncio.to_thread(self._files.read, sha256)
        except FileNotFoundError:
            raise NotFoundError(f"{what} is gone: its file was removed") from None
        except OSError as error:
            _log.error("%s cannot be read: %s", what, error)
            reason = (
                "is damaged" if isinstance(error, DamagedFileError) else f"cannot be read ({error.strerror})"
            )
            raise DamagedPictureError(
                f"{what}: its file {sha256} {reason} on the server's disk; make or send the same image "
                f"again, which replaces the file"
            ) from error

    async def _read(self, work: Work[T]) -> T:
        """Run a read-only call, which does not wait for the write lock of another process."""
        return await self._call(work, writes=False)

    async def _call(self, work: Work[T], *, durable: bool = True, writes: bool = True) -> T:
        if self._closed:
            raise UnavailableError("the deployment has stopped; try again when it runs")
        with _refusals(self.folder):
            try:
                return await self._database.call(work, durable=durable, writes=writes)
            except sqlite3.Error as error:
                self._note_error(error)
                raise

    def _if_healthy(self, work: Work[T]) -> Work[T]:
        """Wrap `work` to raise UnavailableError if the database is damaged or no longer the folder's file."""

        def checked(connection: sqlite3.Connection) -> T:
            self._health.check_file()
            return work(connection)

        return checked

    def _note_error(self, error: Exception) -> None:
        if is_damage(error):
            self._health.note_damage(str(error))
        elif not isinstance(error, sqlite3.IntegrityError):
            self.check_wanted.set()


async def hash_in_thread(size: int, work: Callable[[], T]) -> T:
    """Run `work`, which hashes `size` bytes, in a thread if that is faster."""
    return await asyncio.to_thread(work) if size > _HASHED_INLINE else work()


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError:
        # A bug, and no refusal of the disk.
        raise
    except (sqlite3.Error, OSError) as error:
        raise unavailable(folder, error) from error


def _lock_folder(folder: Path) -> FileLock:
    """The folder's lock, which is released when this process ends, however it ends."""
    # A queue may be opened in one thread and closed in another.
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UnavailableError(
            f"{folder} is in use by another server; stop that one, or choose another folder"
        ) from None
    return lock


class WorkflowImages(Store):
    """A store with uploads and named images. Every changing method is on disk when it returns."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._clock = clock
        super().__init__(folder)

    async def keep(self, job_id: str, pictures: Sequence[GeneratedImage]) -> tuple[JobPicture, ...] | None:
        """Store images of a running workflow by name; None if it no longer runs."""
        size = sum(len(image.data) for image in pictures)
        described = await hash_in_thread(size, lambda: tuple(image.described() for image in pictures))
        files = {record.sha256: image.data for record, image in zip(described, pictures, strict=True)}
        is_running = await self._with_files(
            files, partial(uploads.name_pictures, job_id=job_id, pictures=described)
        )
        return described if is_running else None

    async def upload(
        self, client: str, file: PictureFile, data: bytes, *, overwrite: bool = False
    ) -> PictureFile:
        """Store an image for later workflows; returns the name it got."""
        name = await hash_in_thread(len(data), lambda: blob_name(data))
        work = partial(
            uploads.enter,
            client=client,
            file=file,
            contents=(name, len(data)),
            now=self._clock.wall(),
            overwrite=overwrite,
        )
        chosen, replaced = await self._with_files({name: data}, self._if_healthy(work))
        await self._remove_unused(replaced)
        return chosen

    async def uploads(self, client: str | None = None) -> list[Upload]:
        """The uploads of a client, or of all clients."""
        return await self._read(partial(uploads.listed, client=client))

    async def missing(self, client: str, inputs: Mapping[str, PictureFile]) -> list[str]:
        """The names of a workflow's input images that do not exist."""
        return await self._read(partial(uploads.missing, client=client, inputs=inputs))

    async def remove_upload(self, client: str, file: PictureFile) -> None:
        """Delete an upload; jobs that use it keep it."""
        await self._remove_unused(await self._call(partial(uploads.remove, client=client, file=file)))

    async def named(self, file: PictureFile, client: str, *, others: bool = False) -> bytes:
        """An upload, or an image of a workflow, by its name: the client's own first.

        With `others`, a name that the client does not have is searched among all other clients' files.
        """
        sha256 = await self._read(partial(uploads.sha256_of, client=client, file=file, others=others))
        return await self._read_file(sha256, f"image {file.filename!r}")
