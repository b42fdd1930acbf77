"""Count and report samples that could not be read, and stop the run if there are too many."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from calotype.core.errors import CalotypeError

_NUM_SHOWN = 5
_log = logging.getLogger(__name__)


class DataError(CalotypeError):
    """Training data that cannot be used; names the location and the problem."""

    def __init__(self, place: object, rule: str) -> None:
        super().__init__(f"{place}: {rule}")


class CorruptSampleError(Exception):
    """One sample that cannot be read. Users never see it: it becomes an entry of the report."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"{name}: {reason}")


@dataclass(frozen=True)
class BadSample:
    """A sample that was skipped, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class BadSampleReport:
    """Every sample that could not be read so far, each once, in the order of discovery."""

    unreadable: tuple[BadSample, ...] = ()

    @property
    def count(self) -> int:
        return len(self.unreadable)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sample.name for sample in self.unreadable)

    def __str__(self) -> str:
        """The first few by name; `unreadable` has all of them."""
        shown = [str(sample) for sample in self.unreadable[:_NUM_SHOWN]]
        more = [f"and {self.count - _NUM_SHOWN} more"] if self.count > _NUM_SHOWN else []
        samples = "1 sample" if self.count == 1 else f"{self.count} samples"
        return "\n".join([f"{samples} could not be read", *shown, *more])


class TooManyCorruptError(CalotypeError):
    """More samples could not be read than the recipe allows."""

    def __init__(self, report: BadSampleReport, limit: int) -> None:
        self.report = report
        fix = "repair or remove them, or raise data.most_corrupt"
        super().__init__(f"{report}\nThe limit is data.most_corrupt={limit}: {fix}")


class BadSampleCounter:
    """Collects unreadable samples over a whole run; a sample that fails in several epochs counts once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: dict[str, BadSample] = {}

    def add(self, unreadable: Iterable[BadSample]) -> None:
        """Record the samples, and raise an error if there are too many."""
        for sample in unreadable:
            if sample.name not in self._found:
                self._found[sample.name] = sample
                self._log_sample(sample)
        if len(self._found) > self._limit:
            raise TooManyCorruptError(self.report(), self._limit)

    def _log_sample(self, sample: BadSample) -> None:
        if len(self._found) <= _NUM_SHOWN:
            last = "; further ones are not logged" if len(self._found) == _NUM_SHOWN else ""
            _log.warning("skipped a sample that cannot be read: %s%s", sample, last)

    def report(self) -> BadSampleReport:
        return BadSampleReport(tuple(self._found.values()))
