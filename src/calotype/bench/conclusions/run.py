"""Everything that follows from references and records. One list of conclusions, one of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.bench.conclusions.batch_and_guidance import shapes
from calotype.bench.conclusions.effects import effects
from calotype.bench.conclusions.gpu_ratios import gpu_ratios
from calotype.bench.conclusions.linear_fits import straight_lines
from calotype.bench.conclusions.precision import precision_gains
from calotype.bench.conclusions.published_claims import verdicts
from calotype.bench.conclusions.scaling import scaling
from calotype.bench.conclusions.types import Statement, Verdict
from calotype.bench.conclusions.vs_references import against_references
from calotype.bench.references.load import distinct
from calotype.bench.references.types import Entry


@dataclass(frozen=True)
class Conclusions:
    statements: tuple[Statement, ...]
    verdicts: tuple[Verdict, ...]
    """Of what the sources conclude themselves."""


def conclude(records: Sequence[Entry] = ()) -> Conclusions:
    """From all references, and from `records` among themselves and against the references."""
    references = distinct()
    # What a server or a loader did is no work that settings describe: any two would seem alike.
    records = [entry for entry in records if entry.settings.work]
    everything = [*references, *records]
    derived = (gpu_ratios, scaling, effects, precision_gains, straight_lines, shapes)
    statements = [statement for derive in derived for statement in derive(everything)]
    statements += against_references(records, references)
    return Conclusions(tuple(statements), tuple(verdicts()))


def only(conclusions: Conclusions, sources: Sequence[str], topics: Sequence[str]) -> Conclusions:
    """What concerns these sources and topics; no names are all of them."""

    def wanted(name: str, names: Sequence[str]) -> bool:
        return not names or name in names

    return Conclusions(
        tuple(s for s in conclusions.statements if wanted(s.source, sources) and wanted(s.topic, topics)),
        tuple(v for v in conclusions.verdicts if wanted(v.source, sources) and not topics),
    )
