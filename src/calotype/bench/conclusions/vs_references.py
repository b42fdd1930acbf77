"""Compares our records with their nearest references."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.conclusions.types import Statement, doubts
from calotype.bench.references.nearest import NearestReference, compare
from calotype.bench.references.types import Entry

_NEAREST = 3


def against_references(records: Sequence[Entry], references: Sequence[Entry]) -> list[Statement]:
    """Compare each record with its nearest references; the notes list the differing settings."""
    return [
        _statement(record, beside, ratio)
        for record in records
        for beside in [one for one in compare(record, references).besides if one.quotable][:_NEAREST]
        if (ratio := beside.ratio)
    ]


def _statement(record: Entry, beside: NearestReference, ratio: float) -> Statement:
    reference, differences = beside.reference, beside.differences
    unsaid = [f"stated by one side only: {', '.join(differences.unsaid)}"] if differences.unsaid else []
    return Statement(
        topic="against references",
        source=record.source,
        says=f"{record.id} is {ratio:.2f}× as fast as {reference.settings.software or reference.label} on "
        f"{reference.settings.gpu or 'an unnamed GPU'} ({reference.id}), per GPU",
        value=ratio,
        unit="×",
        arithmetic=f"{beside.ours:.4g} / {beside.theirs:.4g} {beside.measure} = {ratio:.4f}",
        inputs=(record.id, reference.id),
        notes=(*map(str, differences.found), *unsaid, *doubts((reference,))),
    )
