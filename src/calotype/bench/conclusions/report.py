"""Formats conclusions as rows of text for a terminal or Markdown."""

from __future__ import annotations

from calotype.bench.conclusions.run import Conclusions
from calotype.bench.conclusions.types import TOPICS, Statement, Verdict
from calotype.spec.records.train_benchmark import markdown

STATED = "conclusions of the sources, recomputed"


def tables(conclusions: Conclusions) -> dict[str, list[dict[str, str]]]:
    """Return the rows by heading."""
    by_topic = {
        topic: [_row(statement) for statement in conclusions.statements if statement.topic == topic]
        for topic in TOPICS
    }
    return {
        heading: rows
        for heading, rows in (by_topic | {STATED: [_verdict(v) for v in conclusions.verdicts]}).items()
        if rows
    }


def as_markdown(conclusions: Conclusions) -> str:
    parts = [f"## {heading}\n\n{markdown(rows)}\n" for heading, rows in tables(conclusions).items()]
    return "\n".join(parts)


def _row(statement: Statement) -> dict[str, str]:
    return {
        "source": statement.source,
        "conclusion": statement.says,
        "arithmetic": statement.arithmetic,
        "notes": "; ".join(statement.notes),
        "from": ", ".join(statement.inputs),
    }


def _verdict(verdict: Verdict) -> dict[str, str]:
    claim, figure = verdict.claim, verdict.claim.figure
    follows = {True: "yes", False: "NO", None: "cannot be derived"}[verdict.follows]
    flags = "; ".join(f"{flag.certainty}: {flag.about}: {flag.reason}" for flag in claim.flags)
    return {
        "source": verdict.source,
        "conclusion": claim.says,
        "stated": "" if figure is None else f"{figure.value:g} {figure.unit}",
        "derived": "" if verdict.derived is None else f"{verdict.derived:.4g}",
        "follows": follows,
        "arithmetic": verdict.arithmetic,
        "flags": flags,
    }
