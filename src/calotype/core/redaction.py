"""What a client elsewhere is told of an error: names of files, not where they lie. Logs say it whole."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from calotype.core.errors import ModelFileError, RequestError

_QUOTED = re.compile(r"(?<=')/[^'\n]+(?=')|(?<=\")/[^\"\n]+(?=\")")
_BARE = re.compile(r"(?<![\w./:~'\"])/[^\s'\"`,;:()\[\]]+")


def redact_paths(error: BaseException) -> str:
    """The message of an error, for a client."""
    message = str(error)
    if isinstance(error, RequestError):
        # All of it is what the client sent, and is shown as it was sent.
        return message
    if isinstance(error, ModelFileError):
        # It may have spaces in it, and stands without quotes.
        message = message.replace(error.file, PurePosixPath(error.file).name)
    return remove_paths(message)


def remove_paths(text: str) -> str:
    """The text with the last part of every path that leads into a folder of this machine."""
    for pattern in (_QUOTED, _BARE):
        text = pattern.sub(lambda found: _name(found[0]), text)
    return text


def _name(path: str) -> str:
    """Addresses such as /v1/jobs look like paths: what tells them apart is whether there is such a folder."""
    parts = PurePosixPath(path).parts
    return parts[-1] if len(parts) > 2 and Path(*parts[:2]).is_dir() else path
