"""Removes folders from error messages for remote clients; logs keep the full message."""

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
        # It contains only what the client sent.
        return message
    if isinstance(error, ModelFileError):
        # The path may contain spaces and is not quoted.
        message = message.replace(error.file, PurePosixPath(error.file).name)
    return remove_paths(message)


def remove_paths(text: str) -> str:
    """Replace every path into an existing folder of this machine by its last part."""
    for pattern in (_QUOTED, _BARE):
        text = pattern.sub(lambda found: _name(found[0]), text)
    return text


def _name(path: str) -> str:
    """The last part of a path; URL paths such as /v1/jobs stay, as there is no such folder."""
    parts = PurePosixPath(path).parts
    return parts[-1] if len(parts) > 2 and Path(*parts[:2]).is_dir() else path
