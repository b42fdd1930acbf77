"""The entry: a measurement of ours or a published one, with settings, figures and known errors."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.spec.published_results import Figure, Flag, Outcome, Settings

RECORDS = "records"
"""The source name of our own records, for any number of systems."""


@dataclass(frozen=True)
class Entry:
    """A measurement as used for comparison, with known errors of the source corrected."""

    id: str
    source: str
    """The publication or peer; `RECORDS` for our own."""
    settings: Settings
    figures: tuple[Figure, ...]
    label: str = ""
    outcome: Outcome = "ok"
    inferred: frozenset[str] = frozenset()
    flags: tuple[Flag, ...] = ()
    repeats: str | None = None
    """The id of the row or table that this one repeats."""
    trial_of: str | None = None
    """The id of the entry that combines this trial with the others."""
    trials: int = 1
    """Number of trials that the figures average."""
    run: str = ""
    """For our records, the folder of the run."""
    swing: float = 0.0
    """Half the spread of the first figure over its trials, as a share of it; 0 without trials."""
