"""A conclusion: a sentence, its number, and the arithmetic that gives it. Derives nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from calotype.bench.references.types import Entry
from calotype.spec.published_results import Claim

Topic = Literal[
    "GPU against GPU",
    "scaling",
    "one thing changed",
    "precision",
    "straight lines",
    "shapes",
    "against references",
]
TOPICS: tuple[Topic, ...] = (
    "GPU against GPU",
    "scaling",
    "one thing changed",
    "precision",
    "straight lines",
    "shapes",
    "against references",
)


@dataclass(frozen=True)
class Statement:
    """Something that follows from measurements."""

    topic: Topic
    source: str
    says: str
    value: float | None
    """None where nothing can be reckoned; `says` has the reason."""
    unit: str
    arithmetic: str
    inputs: tuple[str, ...]
    """Ids of the entries."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether a conclusion of a source follows from its own figures."""

    source: str
    claim: Claim
    derived: float | None
    arithmetic: str
    follows: bool | None
    """None where the source gives nothing to derive it from."""


def doubts(entries: Iterable[Entry]) -> tuple[str, ...]:
    """What is flagged of a statement's inputs, once each."""
    found = [
        f"{entry.id} is {flag.certainty}: {flag.reason}"
        for entry in entries
        for flag in entry.flags
        if flag.certainty == "doubtful"
    ]
    return tuple(dict.fromkeys(found))
