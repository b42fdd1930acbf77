"""A measurement, whoever made it: settings, figures, and what is known to be wrong with it. Reads no file."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.spec.published_results import Figure, Flag, Outcome, Settings

RECORDS = "records"
"""The source of what was measured here, of any number of systems."""


@dataclass(frozen=True)
class Entry:
    """What is reckoned with: corrected where the source is known to be wrong."""

    id: str
    source: str
    """Which text or peer; for records of ours, their file."""
    settings: Settings
    figures: tuple[Figure, ...]
    label: str = ""
    outcome: Outcome = "ok"
    inferred: frozenset[str] = frozenset()
    flags: tuple[Flag, ...] = ()
    repeats: str | None = None
    """The id of the row, or of the table, that this one only repeats."""
    trial_of: str | None = None
    """The id that it and other repetitions have as one."""
    trials: int = 1
    """How many repetitions the figures are the mean of."""
    run: str = ""
    """Of records of ours, the folder they lie in: what was measured together."""
    swing: float = 0.0
    """How far repetitions lie to either side of the first figure, as a share of it; 0 without any."""
