"""API keys of a deployment: named, stored as salted hashes in one file, each with its own quotas.

A key is shown once, when it is made. It has 256 random bits, so a fast hash is as safe as a slow one and adds
no latency. Another process may change the file while a server runs: the server reads it again when it has
changed.

A deployment that has had keys never becomes open: a running server keeps the last keys that it could read,
and a mark in the deployment's folder makes the next start fail where the file is missing or holds no key.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calotype.core.errors import NotFoundError, Problem, RequestError, did_you_mean
from calotype.core.paths import atomic_write, check_name
from calotype.serve.service import QueueFullError, UnavailableError
from calotype.spec.validation_errors import problems_of

_log = logging.getLogger(__name__)

FILE_NAME = "keys.json"
MARK_NAME = "keys-required"
"""In a deployment's folder, with the path of its key file: the deployment has had API keys."""
LOCAL = "local"
"""The client name of requests without a key; no key can have this name."""
PREFIX = "calotype"
MAX_TOKEN_LENGTH = 200


class ApiKey(BaseModel):
    """A key as it is stored; the token cannot be derived from it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    id: str
    """The public part of the token."""
    name: str
    """The client that it authenticates. A new key with the name of a revoked one continues as that client."""
    salt: str
    hash: str
    created_at: float
    revoked_at: float | None = None
    max_queued: Annotated[int, Field(ge=1)] | None = None
    """Queued jobs that this client may have; the deployment's limit by default."""
    pictures_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Quota of images: this many at once, refilled every minute; no quota by default."""


class _KeyFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    keys: Annotated[tuple[ApiKey, ...], Field(strict=False)] = ()


class ApiKeys:
    """The keys in a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        data_folder: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`data_folder` is the deployment's own folder, where `folder` is another."""
        self._path, self._monotonic = folder / FILE_NAME, monotonic
        self._mark = (data_folder or folder) / MARK_NAME
        self._seen = self._stamp()
        self._keys = self._read()
        self._required = self._seen is not None or self._mark.exists()
        self._problem = self._missing(self._keys)
        self._spent: dict[str, tuple[float, float]] = {}
        """Images that a client had left, and when."""

    def create(
        self, name: str, *, max_queued: int | None = None, pictures_per_minute: int | None = None
    ) -> str:
        """Make a key and return its token, which cannot be read again later."""
        check_name("name", name)
        if name == LOCAL:
            rule = f"{name!r} is the name of clients without a key; choose another"
            raise RequestError([Problem("name", rule, name)])
        key_id, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_hex(16)
        try:
            key = ApiKey(
                id=key_id,
                name=name,
                salt=salt,
                hash=_hashed(secret, salt),
                created_at=time.time(),
                max_queued=max_queued,
                pictures_per_minute=pictures_per_minute,
            )
        except ValidationError as error:
            raise RequestError(problems_of(ApiKey, error)) from None
        with self._changing() as keys:
            if any(key.name == name for key in _valid(keys)):
                rule = f"a key {name!r} exists; revoke it first, or choose another name"
                raise RequestError([Problem("name", rule, name)])
            keys.append(key)
        return f"{PREFIX}-{key_id}-{secret}"

    def revoke(self, name: str) -> None:
        """Revoke the key with this name."""
        with self._changing() as keys:
            matches = [key for key in _valid(keys) if key.name == name]
            if not matches:
                raise NotFoundError(
                    f"no key {name!r}; {did_you_mean(name, [key.name for key in _valid(keys)])}"
                )
            at = keys.index(matches[0])
            keys[at] = matches[0].model_copy(update={"revoked_at": time.time()})

    def all(self) -> Sequence[ApiKey]:
        """All valid keys."""
        return _valid(self._current())

    def exist(self) -> bool:
        """Whether clients need a key: there is or was a key file, even if all its keys are revoked."""
        self._current()
        return self._required

    def has_any(self) -> bool:
        """Whether the key file holds a key, even if all are revoked."""
        return bool(self._current())

    def problem(self) -> str | None:
        """Why the key file cannot be used now, and what the server does instead."""
        self._current()
        return self._problem

    def check(self, token: str) -> str | None:
        """The client that a token authenticates. Takes as long for a wrong secret as for a right one."""
        _, _, rest = token[:MAX_TOKEN_LENGTH].partition("-")
        key_id, _, secret = rest.partition("-")
        key = next((key for key in _valid(self._current()) if key.id == key_id), None)
        salt, expected = (key.salt, key.hash) if key else ("", _hashed("", ""))
        right = hmac.compare_digest(_hashed(secret, salt), expected)
        return key.name if key and right and token.startswith(f"{PREFIX}-") else None

    def max_queued(self, client: str) -> int | None:
        """A client's own limit on queued jobs."""
        key = self._of(client)
        return key.max_queued if key else None

    def spend(self, client: str, images: int) -> None:
        """Count images against the quota; QueueFullError says when there is room."""
        key = self._of(client)
        if key is None or key.pictures_per_minute is None:
            return
        most = key.pictures_per_minute
        if images > most:
            rule = f"{images} images at once, the limit of {client!r} is {most} a minute; request fewer"
            raise RequestError([Problem("count", rule, images)])
        left = self._left(client, most)
        if images > left:
            raise QueueFullError(
                f"{client!r} may request {most} images a minute and has {int(left)} left; try again later",
                retry_after_s=(images - left) * 60 / most,
            )
        self._spent[client] = (left - images, self._monotonic())

    def refund(self, client: str, images: int) -> None:
        """Return images that were counted but not accepted."""
        key = self._of(client)
        if key is not None and key.pictures_per_minute is not None:
            left = self._left(client, key.pictures_per_minute) + images
            self._spent[client] = (min(left, key.pictures_per_minute), self._monotonic())

    def _left(self, client: str, most: int) -> float:
        left, at = self._spent.get(client, (float(most), self._monotonic()))
        return min(float(most), left + (self._monotonic() - at) * most / 60)

    def _of(self, client: str) -> ApiKey | None:
        return next((key for key in _valid(self._current()) if key.name == client), None)

    @contextmanager
    def _changing(self) -> Iterator[list[ApiKey]]:
        """The keys, for one process at a time to change; written at the end of the block."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._path.with_suffix(".lock")):
            keys = list(self._read())
            yield keys
            with atomic_write(self._path, "w") as file:
                file.write(_KeyFile(keys=tuple(keys)).model_dump_json(indent=1))
            self._path.chmod(0o600)
        self._keys, self._seen, self._problem = tuple(keys), self._stamp(), None
        self.require()

    def require(self) -> None:
        """Refuse requests without a key from now on, also after a restart."""
        self._required = True
        if self._mark.exists():
            return
        try:
            with atomic_write(self._mark, "w") as file:
                file.write(f"{self._path}\n")
        except OSError as error:
            # This process requires keys all the same; the next one sees the key file.
            _log.warning("%s cannot be written: %s", self._mark, error.strerror or error)

    def _current(self) -> Sequence[ApiKey]:
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            self._read_again()
        return self._keys

    def _read_again(self) -> None:
        self._required = self._required or self._seen is not None
        if self._required:
            self.require()
        try:
            keys = self._read()
            problem = self._missing(keys)
        except UnavailableError as error:
            keys, problem = (), str(error)
        if problem is not None:
            meanwhile = (
                "the keys that were read last stay valid" if self._keys else "every request is refused"
            )
            problem = f"{problem}; until then {meanwhile}"
            _log.error("%s", problem)
        else:
            if self._problem is not None:
                _log.warning("the API keys in %s can be read again", self._path)
            self._keys = keys
        self._problem = problem

    def _missing(self, keys: Sequence[ApiKey]) -> str | None:
        """What is wrong with a key file that is required, if it holds no key."""
        if keys or not self._required:
            return None
        state = "holds no key" if self._seen is not None else "is missing"
        return f"{self._path} {state}, and clients need a key here; restore it or make a new key"

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            # Reading the file reports the error.
            return (error.errno or 0,)
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> tuple[ApiKey, ...]:
        try:
            return _KeyFile.model_validate_json(self._path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except (ValidationError, OSError) as error:
            first = str(error).splitlines()[0]
            rule = "repair it, or remove it and make new keys"
            raise UnavailableError(f"the API keys in {self._path} cannot be read: {first}; {rule}") from error


def server_keys(name: str, data_folder: Path, named_folder: Path | None) -> ApiKeys:
    """The keys that a server checks; raises where keys are required and there are none.

    `named_folder` is the folder that the deployment was started with, `data_folder` its own.
    """
    keys = ApiKeys(named_folder or data_folder, data_folder=data_folder)
    if named_folder is None and not keys.exist():
        return keys
    path = (named_folder or data_folder) / FILE_NAME
    if not keys.has_any():
        state = "holds no key" if path.exists() else "is missing"
        rule = f"{path} {state}; without keys this server would be open to every user of this machine. "
        rule += _how_to_restore(name, path, data_folder, named_folder)
        raise RequestError([Problem("keys_folder", rule, str(path.parent))])
    keys.require()
    return keys


def _how_to_restore(name: str, path: Path, data_folder: Path, named_folder: Path | None) -> str:
    if named_folder is not None:
        return f"Name the folder of a {FILE_NAME} with a key; `calotype keys create` makes one"
    mark = data_folder / MARK_NAME
    before = mark.read_text("utf-8", errors="replace").strip() if mark.exists() else str(path)
    elsewhere = f" or start with `--keys {Path(before).parent}`" if before != str(path) else ""
    return (
        f"{name!r} had API keys in {before}: restore that file{elsewhere}, "
        f"or make a new key with `calotype keys create NAME --deployment {name}`"
    )


def _valid(keys: Sequence[ApiKey]) -> Sequence[ApiKey]:
    return [key for key in keys if key.revoked_at is None]


def _hashed(secret: str, salt: str) -> str:
    data = secret.encode(errors="surrogatepass")
    return hashlib.blake2b(data, salt=bytes.fromhex(salt), person=b"calotype-key").hexdigest()
