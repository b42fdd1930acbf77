"""The types of conclusions: a sentence with its number and arithmetic, and a verdict on a claim."""

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
    """A conclusion from measurements."""

    topic: Topic
    source: str
    says: str
    value: float | None
    """None if it cannot be computed; `says` gives the reason."""
    unit: str
    arithmetic: str
    inputs: tuple[str, ...]
    """Ids of the entries."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether a source's conclusion follows from its own figures."""

    source: str
    claim: Claim
    derived: float | None
    arithmetic: str
    follows: bool | None
    """None if the source gives no figures to derive it from."""


def doubts(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the doubts about a statement's inputs, without repetition."""
    found = [
        f"{entry.id} is {flag.certainty}: {flag.reason}"
        for entry in entries
        for flag in entry.flags
        if flag.certainty == "doubtful"
    ]
    return tuple(dict.fromkeys(found))
