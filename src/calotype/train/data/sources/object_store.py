"""Download files from object storage (s3://, gs://, az://) with the optional package `obstore`.

Credentials and endpoints come from the environment variables of each cloud's own tools.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from calotype.core.errors import NotFoundError
from calotype.core.extras import MissingExtraError

SCHEMES = ("s3", "gs", "az")
_CHUNK_BYTES = 2**23
# The caller retries, in the same way for all kinds of sources.
_ONE_TRY = {"max_retries": 0}
_FINAL = (
    "NotFoundError",
    "FileNotFoundError",
    "PermissionDeniedError",
    "UnauthenticatedError",
    "InvalidPathError",
)


class RetryableError(Exception):
    """A failed try that is worth repeating."""


def is_object(url: str) -> bool:
    return urlsplit(url).scheme in SCHEMES


def resume_object(url: str, part: Path, validator: Path) -> None:
    """One try: request the bytes of the object that `part` lacks, and append them.

    Received bytes count only while the object is the one that the download began with; `validator` stores its
    tag.
    """
    tag = validator.read_text(encoding="utf-8") if validator.exists() else ""
    received = part.stat().st_size if tag and part.exists() else 0
    store = _obstore()
    folder, _, name = url.rpartition("/")
    options: dict[str, Any] = {"range": {"offset": received}, "if_match": tag} if received else {}
    try:
        place = import_module("obstore.store").from_url(folder, retry_config=_ONE_TRY)
        response = store.get(place, name, options=options)
        if not received:
            validator.write_text(response.meta["e_tag"] or "", encoding="utf-8")
        _write(response, part, received)
    except store.exceptions.PreconditionError:
        part.unlink(missing_ok=True)
        raise RetryableError("the object has changed since the start of its download") from None
    except (store.exceptions.BaseError, FileNotFoundError) as error:
        message = str(error).split("\n", 1)[0]
        if type(error).__name__ in _FINAL:
            raise NotFoundError(f"{url}: {message}; check data.path and your credentials") from None
        raise RetryableError(message) from None


def _write(response: Any, part: Path, received: int) -> None:
    with part.open("ab" if received else "wb") as file:
        for chunk in response.stream(min_chunk_size=_CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        total_received = file.tell()
    if total_received != response.meta["size"]:
        raise RetryableError(f"the connection closed after {total_received} of {response.meta['size']} bytes")


def _obstore() -> Any:
    try:
        return import_module("obstore")
    except ImportError:
        what = f"a path of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        raise MissingExtraError("obstore", "cloud", what) from None
