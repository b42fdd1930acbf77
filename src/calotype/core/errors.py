"""Errors a user can act on, and the exit code each one becomes.

Every error carries the value, the limit and the fix in its message. Programming mistakes stay plain Python
exceptions: only what a user can put right is a CalotypeError. This file knows nothing of requests or models.
"""

import difflib
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of the `calotype` command; part of its interface, so numbers never change meaning."""

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
    """Base of everything a user can put right."""

    exit_code = ExitCode.BAD_REQUEST


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a request: where, what, and the rule it breaks."""

    field: str
    message: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class RequestError(CalotypeError):
    """A request that cannot be served as asked; lists every problem at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ModelFileError(CalotypeError):
    """A model file that breaks a rule; names the file and the rule, so that nobody guesses."""

    exit_code = ExitCode.BAD_MODEL_FILE

    def __init__(self, file: object, rule: str) -> None:
        self.file = str(file)
        self.rule = rule
        super().__init__(f"{self.file}: {rule}")


class NotFoundError(CalotypeError):
    """A name that leads nowhere."""

    exit_code = ExitCode.NOT_FOUND


class DoesNotFitError(CalotypeError):
    """Work that needs more memory than there is; the message says the largest that would fit."""

    exit_code = ExitCode.DOES_NOT_FIT


DISK_FULL_CODES = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a file system answers when it has no space left, or when a quota is used up."""


class DiskFullError(CalotypeError):
    """A file that needs more space than its disk has; the message names the disk or folder."""

    exit_code = ExitCode.DISK_FULL


class OfflineError(CalotypeError):
    """Something that is only on the network, and the network is not there."""

    exit_code = ExitCode.OFFLINE


class CancelledError(CalotypeError):
    """The user asked to stop."""

    exit_code = ExitCode.CANCELLED


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known names, or all of them when nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    return f"known: {', '.join(names)}" if names else "none are known"
