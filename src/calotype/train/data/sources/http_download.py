"""Download files over HTTP or from object storage into the cache, and resume interrupted downloads.

A file that is complete in the cache is not requested again.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from threading import Event
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from calotype.core.errors import DISK_FULL_CODES, DiskFullError, NotFoundError, OfflineError
from calotype.core.paths import cache_dir
from calotype.train.data.bad_samples import DataError
from calotype.train.data.file_lock import exclusive_lock
from calotype.train.data.sources.object_store import RetryableError, is_object, resume_object

MAX_TRIES = 5
FIRST_PAUSE_S = 0.5
_TIMEOUT_S = 60.0
_CHUNK_BYTES = 2**20
_AT_ONCE = 8
_OK, _PARTIAL, _RANGE_REFUSED = 200, 206, 416
_LOCAL_DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
)
_RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


def is_url(path: str) -> bool:
    """Whether the path is an HTTP URL or in object storage."""
    return urlsplit(path).scheme in ("http", "https") or is_object(path)


def fetch_all(urls: Sequence[str]) -> list[Path]:
    """Local paths of all files, in the given order; a few are downloaded in parallel."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(fetch, urls))


def fetch(url: str) -> Path:
    """The local path of the file at `url`, downloaded if it is not in the cache yet."""
    path = kept_at(url)
    with exclusive_lock(path):
        if not path.exists():
            fetch_to(url, path)
    return path


def kept_at(url: str) -> Path:
    """The cache path of the file at `url`, whether or not it has been downloaded."""
    name = urlsplit(url).path.rpartition("/")[2][-100:]
    return cache_dir() / "downloads" / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}-{name}"


def fetch_to(url: str, path: Path, fault: Callable[[Path], str | None] = lambda _: None) -> None:
    """Download `url` to `path`, under the caller's lock; a file with a `fault` is downloaded again."""
    part = path.with_name(f"{path.name}.part")
    reason = ""
    for attempt in range(MAX_TRIES):
        if attempt:
            # Exponential backoff: fast retries do not help a server in trouble.
            Event().wait(FIRST_PAUSE_S * 2 ** (attempt - 1))
        try:
            _try_download(url, part)
        except RetryableError as error:
            reason = str(error)
            continue
        found = fault(part)
        if found is not None:
            reason = found
            part.unlink()
            continue
        part.replace(path)
        _validator_of(part).unlink(missing_ok=True)
        return
    rule = f"could not be downloaded in {MAX_TRIES} tries, the last failed with: {reason}"
    raise OfflineError(f"{url} {rule}. The received part is kept; run again to resume from there")


def _try_download(url: str, part: Path) -> None:
    """One try: request the missing bytes, and append them."""
    if is_object(url):
        resume_object(url, part, _validator_of(part))
        return
    validator = _read_validator(part)
    received = part.stat().st_size if validator and part.exists() else 0
    headers = {"User-Agent": "calotype", "Accept-Encoding": "identity"}
    if received:
        # With If-Range the server sends the whole new file if it has changed since.
        headers |= {"Range": f"bytes={received}-", "If-Range": validator}
    request = Request(url, headers=headers)  # noqa: S310 - only http and https come here
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - as above
            _receive(response, part, received)
    except HTTPError as error:
        error.close()
        if error.code == _RANGE_REFUSED:
            part.unlink(missing_ok=True)
        elif error.code not in _RETRYABLE_STATUS:
            rule = f"the server answers {error.code} ({error.reason}); check data.path"
            raise NotFoundError(f"{url}: {rule}") from None
        raise RetryableError(f"HTTP {error.code} ({error.reason})") from None
    except URLError as error:
        raise RetryableError(str(error.reason)) from None
    except (OSError, HTTPException) as error:
        if isinstance(error, OSError) and error.errno in _LOCAL_DISK_ERRORS:
            rule = f"cannot be written: {error.strerror}; make room, or set CALOTYPE_CACHE elsewhere"
            if error.errno in DISK_FULL_CODES:
                raise DiskFullError(f"{part}: {rule}") from None
            raise DataError(part, rule) from None
        raise RetryableError(str(error) or type(error).__name__) from None


def _receive(response: HTTPResponse, part: Path, received: int) -> None:
    resumes = response.status == _PARTIAL and response.headers.get("Content-Range", "").startswith(
        f"bytes {received}-"
    )
    if not resumes:
        received = 0
        part.unlink(missing_ok=True)
        _write_validator(part, response)
        if response.status != _OK:
            raise RetryableError(f"HTTP {response.status} with another byte range than requested")
    length = response.headers.get("Content-Length")
    with part.open("ab") as file:
        while chunk := response.read(_CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        total_received = file.tell()
    # http.client treats a connection that closes early as the end of the file.
    if length is not None and total_received < received + int(length):
        raise RetryableError(
            f"the connection closed after {total_received} of {received + int(length)} bytes"
        )


def _validator_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.validator")


def _write_validator(part: Path, response: HTTPResponse) -> None:
    """Store the identity of this version of the file; without it two versions could be mixed in one file."""
    tag = response.headers.get("ETag", "")
    strong = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
    _validator_of(part).write_text(strong, encoding="utf-8")


def _read_validator(part: Path) -> str:
    try:
        return _validator_of(part).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
