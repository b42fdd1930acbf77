"""Errors that a user can fix, each with an exit code.

Messages state the value, the limit and the fix. Programming errors stay plain Python exceptions.
"""

import difflib
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of the `calotype` command; part of its interface, so numbers never change their meaning."""

    OK = 0
    BUG = 1
    BAD_REQUEST = 2
    BAD_MODEL_FILE = 3
    NOT_FOUND = 4
    DOES_NOT_FIT = 5
    OFFLINE = 6
    GPU_REFUSED = 7
    PEERS_LOST = 8
    DISK_FULL = 9
    CANCELLED = 130
    READER_LEFT = 141


class CalotypeError(Exception):
    """Base of all errors that a user can fix."""

    exit_code = ExitCode.BAD_REQUEST


@dataclass(frozen=True)
class Problem:
    """One problem of a request: field, message with the violated rule, and value."""

    field: str
    message: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class RequestError(CalotypeError):
    """An invalid request; lists all of its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ModelFileError(CalotypeError):
    """An invalid or unsafe model file; the message names the file and the violated rule."""

    exit_code = ExitCode.BAD_MODEL_FILE

    def __init__(self, file: object, rule: str) -> None:
        self.file = str(file)
        self.rule = rule
        super().__init__(f"{self.file}: {rule}")


class NotFoundError(CalotypeError):
    """A name that does not exist."""

    exit_code = ExitCode.NOT_FOUND


class DoesNotFitError(CalotypeError):
    """Work that needs more memory than there is; the message states the largest size that fits."""

    exit_code = ExitCode.DOES_NOT_FIT


DISK_FULL_CODES = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a file system that is full or whose quota is used up."""


class DiskFullError(CalotypeError):
    """A file that does not fit on its disk; the message names the disk or folder."""

    exit_code = ExitCode.DISK_FULL


class OfflineError(CalotypeError):
    """A resource that requires the network, which is unavailable."""

    exit_code = ExitCode.OFFLINE


class CancelledError(CalotypeError):
    """The user cancelled the work."""

    exit_code = ExitCode.CANCELLED


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the closest known names, or with all of them if none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(repr(n) for n in close)}?"
    return f"known: {', '.join(names)}" if names else "none are known"
