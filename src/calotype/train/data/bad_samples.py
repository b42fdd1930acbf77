"""The account of samples that could not be read: which, why, and when there are too many.

Knows nothing of how samples are read.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from calotype.core.errors import CalotypeError

_NUM_SHOWN = 5
_log = logging.getLogger(__name__)


class DataError(CalotypeError):
    """Training data that cannot be used; names the place and the rule."""

    def __init__(self, place: object, rule: str) -> None:
        super().__init__(f"{place}: {rule}")


class CorruptSampleError(Exception):
    """One sample that cannot be read. Never reaches the user: it becomes a line of the report."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"{name}: {reason}")


@dataclass(frozen=True)
class BadSample:
    """A sample that was left out, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class BadSampleReport:
    """Every sample that could not be read so far, each once, in the order they turned up."""

    unreadable: tuple[BadSample, ...] = ()

    @property
    def count(self) -> int:
        return len(self.unreadable)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sample.name for sample in self.unreadable)

    def __str__(self) -> str:
        """The first few by name; all of them are in `unreadable`."""
        shown = [str(sample) for sample in self.unreadable[:_NUM_SHOWN]]
        more = [f"and {self.count - _NUM_SHOWN} more"] if self.count > _NUM_SHOWN else []
        samples = "1 sample" if self.count == 1 else f"{self.count} samples"
        return "\n".join([f"{samples} could not be read", *shown, *more])


class TooManyCorruptError(CalotypeError):
    """More samples could not be read than the recipe allows."""

    def __init__(self, report: BadSampleReport, most: int) -> None:
        self.report = report
        fix = "repair or remove them, or raise data.most_corrupt"
        super().__init__(f"{report}\nThe limit is data.most_corrupt={most}: {fix}")


class BadSampleCounter:
    """Collects unreadable samples over a whole run; a sample met again in a later epoch counts once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[str, BadSample] = {}

    def add(self, unreadable: Iterable[BadSample]) -> None:
        """Take note, and stop the run when it is too much."""
        for sample in unreadable:
            if sample.name not in self._found:
                self._found[sample.name] = sample
                self._say(sample)
        if len(self._found) > self._most:
            raise TooManyCorruptError(self.report(), self._most)

    def _say(self, sample: BadSample) -> None:
        if len(self._found) <= _NUM_SHOWN:
            last = "; more are not told one by one" if len(self._found) == _NUM_SHOWN else ""
            _log.warning("left out, since it cannot be read: %s%s", sample, last)

    def report(self) -> BadSampleReport:
        return BadSampleReport(tuple(self._found.values()))
