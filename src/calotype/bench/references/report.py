"""Formats comparisons as rows of text for a terminal or Markdown, and as values for JSON."""

from __future__ import annotations

from typing import Any

from calotype.bench.references.nearest import Comparison, NearestReference
from calotype.bench.references.settings_diff import in_words, shown_switches
from calotype.bench.references.units import measures
from calotype.spec.records.train_benchmark import markdown


def headline(comparison: Comparison) -> str:
    """Describe the record in one line."""
    record = comparison.record
    settings = record.settings
    figures = [f"{value:.4g} {measure}" for measure, value in measures(record).items()] or [record.outcome]
    where = f"{settings.num_gpus or '?'} × {settings.gpu or 'unknown GPU'}"
    values = ", ".join(figures)
    if (settings.gpu or "").startswith("CPU"):
        values = values.replace("/GPU", "")
    return f"{record.id}: {settings.work} {settings.weights or settings.model}, {where}: {values}"


def rows(comparison: Comparison, limit: int | None) -> list[dict[str, str]]:
    """Return one row for each reference."""
    return [_row(beside) for beside in comparison.besides[:limit]]


def as_markdown(comparison: Comparison, limit: int | None) -> str:
    shown = rows(comparison, limit)
    table = markdown(shown) if shown else "No reference has comparable settings."
    flags = "\n".join(f"- {line}" for line in flagged(comparison, limit))
    parts = (f"## {headline(comparison)}", table, flags, remainder(comparison, limit))
    return "\n\n".join(filter(None, parts)) + "\n"


def remainder(comparison: Comparison, limit: int | None) -> str:
    """Say how many references are not shown."""
    left = len(comparison.besides[limit:]) if limit is not None else 0
    return f"{left} references are less similar; --all shows them." if left else ""


def as_values(comparison: Comparison, limit: int | None) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    return {
        "record": comparison.record.id,
        "measures": measures(comparison.record),
        "outcome": comparison.record.outcome,
        "settings": comparison.record.settings,
        "references": [_values(beside) for beside in comparison.besides[:limit]],
        "left_out": len(comparison.besides[limit:]) if limit is not None else 0,
    }


def flagged(comparison: Comparison, limit: int | None) -> list[str]:
    """Return one line for each known error or doubt about the references shown."""
    references = [beside.reference for beside in comparison.besides[:limit]]
    return [
        f"{reference.id}: {flag.certainty}: {flag.about}: {flag.reason}"
        for reference in references
        for flag in reference.flags
    ]


def _row(beside: NearestReference) -> dict[str, str]:
    reference, ratio, settings = beside.reference, beside.ratio, beside.reference.settings
    count = f" (mean of {reference.trials})" if reference.trials > 1 else ""
    system = " on ".join(filter(None, (settings.software or reference.label, settings.gpu)))
    switches = f" [{shown_switches(settings)}]" if settings.switches else ""
    differing = [str(difference) for difference in beside.differences.found]
    if beside.differences.unsaid:
        differing.append(f"stated by one side only: {', '.join(beside.differences.unsaid)}")
    if reference.inferred:
        differing.append(f"assumed, not stated: {', '.join(in_words(reference.inferred))}")
    return {
        "reference": f"{reference.id}{count}",
        "system": f"{system}{switches}",
        "theirs": reference.outcome if beside.theirs is None else f"{beside.theirs:.4g} {beside.measure}",
        "ours ÷ theirs": "" if ratio is None else f"{ratio:.2f}×",
        "their memory": "" if beside.theirs_gib is None else f"{beside.theirs_gib:.1f} GiB",
        "not comparable": "; ".join(differing) or "nothing found",
    }


def _values(beside: NearestReference) -> dict[str, Any]:
    reference = beside.reference
    return {
        "reference": reference.id,
        "settings": reference.settings,
        "inferred": sorted(reference.inferred),
        "outcome": reference.outcome,
        "measure": beside.measure,
        "ours": beside.ours,
        "theirs": beside.theirs,
        "ratio": beside.ratio,
        "ours_gib": beside.ours_gib,
        "theirs_gib": beside.theirs_gib,
        "not_comparable": beside.differences.found,
        "not_said": beside.differences.unsaid,
        "flags": reference.flags,
    }
