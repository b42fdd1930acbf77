"""Files in object storage (s3://, gs://, az://) through the package `obstore`, an optional extra.

Credentials and endpoints are taken from the environment, as each cloud's own tools name them. Knows nothing
of caches, nor of what the files hold.
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
# How often is decided by whoever downloads, for all kinds of places alike.
_ONE_TRY = {"max_retries": 0}
_FINAL = (
    "NotFoundError",
    "FileNotFoundError",
    "PermissionDeniedError",
    "UnauthenticatedError",
    "InvalidPathError",
)


class RetryableError(Exception):
    """A try that failed in a way the next one may not."""


def is_object(url: str) -> bool:
    return urlsplit(url).scheme in SCHEMES


def resume_object(url: str, part: Path, validator: Path) -> None:
    """One try: ask for what `part` lacks of the object, and write what comes.

    What has arrived counts only while the object is the one that it began with, which `validator` remembers.
    """
    begun = validator.read_text(encoding="utf-8") if validator.exists() else ""
    done = part.stat().st_size if begun and part.exists() else 0
    store = _obstore()
    folder, _, name = url.rpartition("/")
    options: dict[str, Any] = {"range": {"offset": done}, "if_match": begun} if done else {}
    try:
        place = import_module("obstore.store").from_url(folder, retry_config=_ONE_TRY)
        answer = store.get(place, name, options=options)
        if not done:
            validator.write_text(answer.meta["e_tag"] or "", encoding="utf-8")
        _write(answer, part, done)
    except store.exceptions.PreconditionError:
        part.unlink(missing_ok=True)
        raise RetryableError("the object has changed since its download began") from None
    except (store.exceptions.BaseError, FileNotFoundError) as error:
        said = str(error).split("\n", 1)[0]
        if type(error).__name__ in _FINAL:
            raise NotFoundError(f"{url}: {said}; check data.path and your credentials") from None
        raise RetryableError(said) from None


def _write(answer: Any, part: Path, done: int) -> None:
    with part.open("ab" if done else "wb") as file:
        for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        arrived = file.tell()
    if arrived != answer.meta["size"]:
        raise RetryableError(f"the connection closed after {arrived} of {answer.meta['size']} bytes")


def _obstore() -> Any:
    try:
        return import_module("obstore")
    except ImportError:
        what = f"a path of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        raise MissingExtraError("obstore", "cloud", what) from None
