"""Builds a report from loaded records: its sections and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calotype.bench.references.types import Entry
from calotype.bench.report.aggregate import PointView, points_of
from calotype.bench.report.document import Report, Section, Table
from calotype.bench.report.load import Material
from calotype.bench.report.sections.ablation import ablation
from calotype.bench.report.sections.contact_sheets import contact_sheets
from calotype.bench.report.sections.dataloader import dataloader
from calotype.bench.report.sections.environment import environment
from calotype.bench.report.sections.headline import champions, entries_of, headline, peers
from calotype.bench.report.sections.published import published
from calotype.bench.report.sections.roofline import roofline_section
from calotype.bench.report.sections.scaling import scaling_studies
from calotype.bench.report.sections.shape_plots import SPREAD, scaling_figures, shape_figures
from calotype.bench.report.sections.tables import (
    all_points,
    commands,
    conclusions,
    failures,
    meanings,
    notes,
    unreadable,
)


def compose(material: Material, title: str | None = None) -> Report:
    points = points_of(material.stored)
    measurements = [one.measurement for one in material.stored]
    roofs = [m for m in measurements if m.kind == "ceiling"]
    entries = entries_of(points)
    best = [point.name for point in champions(points)]
    faults, listed = list(material.faults), all_points(points)
    sheets = contact_sheets(points, faults)
    sections = (
        headline(points, entries),
        published(points, entries),
        _of_tables("environment", "Environment", [environment(measurements)]),
        Section("shapes", "Batch, resolution, steps", SPREAD, figures=tuple(shape_figures(points))),
        Section("scaling", "Scaling over GPUs", SPREAD, figures=tuple(scaling_figures(points))),
        scaling_studies(material.studies),
        _of_tables("feeding", "Feeding the GPUs", dataloader(points)),
        ablation(points),
        roofline_section(points, material.ceilings, roofs),
        peers(points),
        sheets,
        _of_tables(
            "conclusions",
            "Conclusions",
            conclusions(_comparable(points, entries), best),
            "Statements derived from the records, each with its arithmetic.",
        ),
        _of_tables("failures", "Failures", failures(points, material.named)),
        _of_tables("points", "All points", listed, meanings(listed)),
        _of_tables("commands", "Commands", [commands(points, material.named)] if points else []),
        _of_tables("notes", "Notes", notes(points)),
        _of_tables("unreadable", "Unreadable lines", unreadable(faults, material.named)),
    )
    devices = dict.fromkeys(m.device for m in measurements if m.device) or ["published points"]
    return Report(
        title or f"Measurements on {', '.join(devices)}",
        _summary(material, points, len(faults)),
        tuple(section for section in sections if not section.empty),
    )


def _comparable(points: Sequence[PointView], entries: Mapping[str, Entry]) -> list[Entry]:
    """Entries without ablation variants and data loading rates, which have their own sections."""
    varied = {point.name for point in points if point.variant is not None or point.first.kind == "data"}
    return [entry for name, entry in entries.items() if name not in varied]


def _of_tables(name: str, title: str, tables: Sequence[Table], says: str = "") -> Section:
    return Section(name, title, says, tables=tuple(tables))


def _summary(material: Material, points: Sequence[PointView], num_faults: int) -> str:
    days = sorted(f"{m.started_at:%Y-%m-%d}" for one in material.stored if (m := one.measurement).started_at)
    when = "" if not days else days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    failed = sum(bool(point.failed) for point in points)
    parts = [
        f"{_count(len(material.stored), 'measurement')} of {_count(len(points), 'point')}",
        f"from {_count(len(material.files), 'file')}",
        when,
        f"{_count(failed, 'point')} failed" if failed else "no failures",
        f"{_count(num_faults, 'line')} could not be read" if num_faults else "",
    ]
    return "; ".join(filter(None, parts)) + "."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
