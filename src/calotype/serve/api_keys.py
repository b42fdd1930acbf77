"""API keys of a deployment: named, kept as salted hashes in one file, each with bounds of its own.

A key is shown once, when it is made. It has 256 random bits, so a fast hash is as safe as a slow one and
costs a request nothing. The file may be changed by another process while a server runs: it is read again when
it has changed. Knows nothing of how a key travels.

A deployment that has had keys never becomes open: a running server keeps the last keys that it could read,
and a mark in the deployment's folder makes the next start refuse where the file is missing or holds no key.
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
"""Who asks without a key; no key can have this name."""
PREFIX = "calotype"
MAX_TOKEN_LENGTH = 200


class ApiKey(BaseModel):
    """A key as it is kept: nothing in it lets anybody in."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    id: str
    """The part of the key that is no secret."""
    name: str
    """The client that it lets in. A key made for the name of a revoked one carries on as that client."""
    salt: str
    hash: str
    created_at: float
    revoked_at: float | None = None
    max_queued: Annotated[int, Field(ge=1)] | None = None
    """Jobs of this client that may wait; as many as the deployment allows if not said."""
    pictures_per_minute: Annotated[int, Field(ge=1)] | None = None
    """As many at once, and as many again every minute; without a bound if not said."""


class _KeyFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    keys: Annotated[tuple[ApiKey, ...], Field(strict=False)] = ()


class ApiKeys:
    """The keys in a folder. Without any key, nobody is known."""

    def __init__(
        self,
        folder: Path,
        *,
        data_folder: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`data_folder` is the deployment's own, where `folder` is elsewhere."""
        self._path, self._monotonic = folder / FILE_NAME, monotonic
        self._mark = (data_folder or folder) / MARK_NAME
        self._seen = self._stamp()
        self._keys = self._read()
        self._required = self._seen is not None or self._mark.exists()
        self._problem = self._missing(self._keys)
        self._spent: dict[str, tuple[float, float]] = {}
        """Pictures that a client had left, and when."""

    def create(
        self, name: str, *, max_queued: int | None = None, pictures_per_minute: int | None = None
    ) -> str:
        """Make a key and answer with it; nobody can read it again later."""
        check_name("name", name)
        if name == LOCAL:
            raise RequestError([Problem("name", f"{name!r} is who asks without a key; choose another", name)])
        key_id, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_hex(16)
        try:
            made = ApiKey(
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
            keys.append(made)
        return f"{PREFIX}-{key_id}-{secret}"

    def revoke(self, name: str) -> None:
        """Let nobody in by this key any more."""
        with self._changing() as keys:
            found = [key for key in _valid(keys) if key.name == name]
            if not found:
                raise NotFoundError(
                    f"no key {name!r}; {did_you_mean(name, [key.name for key in _valid(keys)])}"
                )
            at = keys.index(found[0])
            keys[at] = found[0].model_copy(update={"revoked_at": time.time()})

    def all(self) -> Sequence[ApiKey]:
        """Every key that lets somebody in."""
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
        """The client that a key lets in. Takes as long for a wrong secret as for a right one."""
        _, _, rest = token[:MAX_TOKEN_LENGTH].partition("-")
        key_id, _, secret = rest.partition("-")
        key = next((key for key in _valid(self._current()) if key.id == key_id), None)
        salt, expected = (key.salt, key.hash) if key else ("", _hashed("", ""))
        right = hmac.compare_digest(_hashed(secret, salt), expected)
        return key.name if key and right and token.startswith(f"{PREFIX}-") else None

    def max_queued(self, client: str) -> int | None:
        """A client's own bound of waiting jobs."""
        key = self._of(client)
        return key.max_queued if key else None

    def spend(self, client: str, pictures: int) -> None:
        """Count pictures that a client asks for, or refuse them and say when there is room."""
        key = self._of(client)
        if key is None or key.pictures_per_minute is None:
            return
        most = key.pictures_per_minute
        if pictures > most:
            rule = f"{pictures} pictures at once, the limit of {client!r} is {most} a minute; ask for fewer"
            raise RequestError([Problem("count", rule, pictures)])
        left = self._left(client, most)
        if pictures > left:
            raise QueueFullError(
                f"{client!r} may ask for {most} pictures a minute and has {int(left)} left; try again later",
                retry_after_s=(pictures - left) * 60 / most,
            )
        self._spent[client] = (left - pictures, self._monotonic())

    def refund(self, client: str, pictures: int) -> None:
        """What was counted and then not accepted."""
        key = self._of(client)
        if key is not None and key.pictures_per_minute is not None:
            left = self._left(client, key.pictures_per_minute) + pictures
            self._spent[client] = (min(left, key.pictures_per_minute), self._monotonic())

    def _left(self, client: str, most: int) -> float:
        left, at = self._spent.get(client, (float(most), self._monotonic()))
        return min(float(most), left + (self._monotonic() - at) * most / 60)

    def _of(self, client: str) -> ApiKey | None:
        return next((key for key in _valid(self._current()) if key.name == client), None)

    @contextmanager
    def _changing(self) -> Iterator[list[ApiKey]]:
        """The keys, to be changed by one process at a time and written at the end."""
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
        """Refuse every request without a key from now on, also after a restart."""
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
            # Reading it says what is wrong.
            return (error.errno or 0,)
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> tuple[ApiKey, ...]:
        try:
            return _KeyFile.model_validate_json(self._path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except (ValidationError, OSError) as error:
            first = str(error).splitlines()[0]
            rule = "put it right, or remove it and make new keys"
            raise UnavailableError(f"the API keys in {self._path} cannot be read: {first}; {rule}") from error


def server_keys(name: str, data_folder: Path, named_folder: Path | None) -> ApiKeys:
    """The keys that the server of a deployment checks; raises where keys are required and there are none.

    `named_folder` is what the deployment was started with, `data_folder` its own.
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
