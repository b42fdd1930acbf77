"""Derives all conclusions from references and records, and the verdicts on the sources' own conclusions."""

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
    """On the sources' own conclusions."""


def conclude(records: Sequence[Entry] = ()) -> Conclusions:
    """Derive conclusions from all references, and from `records` alone and against the references."""
    references = distinct()
    # The settings do not describe the work of servers and data loaders: any two would seem equal.
    records = [entry for entry in records if entry.settings.work]
    everything = [*references, *records]
    derived = (gpu_ratios, scaling, effects, precision_gains, straight_lines, shapes)
    statements = [statement for derive in derived for statement in derive(everything)]
    statements += against_references(records, references)
    return Conclusions(tuple(statements), tuple(verdicts()))


def only(conclusions: Conclusions, sources: Sequence[str], topics: Sequence[str]) -> Conclusions:
    """Select sources and topics; an empty list selects all."""

    def wanted(name: str, names: Sequence[str]) -> bool:
        return not names or name in names

    return Conclusions(
        tuple(s for s in conclusions.statements if wanted(s.source, sources) and wanted(s.topic, topics)),
        tuple(v for v in conclusions.verdicts if wanted(v.source, sources) and not topics),
    )
