"""The tables of points, failures, commands, notes, conclusions and unreadable lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from calotype.bench.conclusions.report import tables as conclusion_tables
from calotype.bench.conclusions.run import conclude, only
from calotype.bench.conclusions.types import Statement
from calotype.bench.records.store import Fault, Stored
from calotype.bench.references.types import RECORDS, Entry
from calotype.bench.report.aggregate import PointView, Spread
from calotype.bench.report.document import Cell, Table, number, table, words
from calotype.spec.statistics import summarize

_AGAINST = "against references"
_Reading = Callable[[PointView], Cell]
Named = Callable[[Path], str]
"""Maps a file to its name in the report."""


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return summarize(known).median if known else None


def _between(spread: Spread | None) -> Cell:
    if spread is None:
        return Cell("")
    return Cell(f"{number(spread.low).text}–{number(spread.high).text}", spread.high - spread.low)


def _quality(point: PointView) -> Cell:
    quality = next((m.quality for m in point.good if m.quality), None)
    if quality is None:
        return Cell("")
    # Bit-identical images sort after any number of decibels.
    return Cell("same", float(10**6)) if quality.psnr_db is None else number(quality.psnr_db, ".1f")


def _load(point: PointView) -> Cell:
    settings = point.first.settings if point.first.kind == "serve" else {}
    shown = {name: settings.get(name) for name in ("engine", "interface", "clients", "rate", "max_rows")}
    return words(", ".join(f"{name}={value}" for name, value in shown.items() if value is not None))


_COLUMNS: dict[str, _Reading] = {
    "point": lambda p: words(p.name),
    "status": lambda p: Cell(p.status, mark="" if p.status == "ok" else "bad"),
    "per second": lambda p: number(p.rate.middle if p.rate else None),
    "seconds": lambda p: number(p.seconds.middle if p.seconds else None),
    "spread, s": lambda p: _between(p.seconds if p.repeated else None),
    "peak GiB": lambda p: number(p.memory_gib, ".1f"),
    "tensors GiB": lambda p: number(p.tensors_gib, ".1f"),
    "TFLOP/s": lambda p: number(p.tflops),
    "of peak rate": lambda p: number(p.share_of_ceiling, ".1%"),
    "load s": lambda p: number(_median(m.preparation.load_s for m in p.good), "#.3g"),
    "compile s": lambda p: number(_median(m.preparation.compile_s for m in p.good), "#.3g"),
    "PSNR dB": _quality,
    "SSIM": lambda p: number(_median(m.quality.ssim if m.quality else None for m in p.good), ".4f"),
    "J each": lambda p: number(_median(m.energy_per_sample_j for m in p.good), ".3g"),
    "load": _load,
    "software": lambda p: words(p.facets["software"]),
    "precision": lambda p: words(p.first.precision),
    "device": lambda p: words(p.first.device),
    "GPUs": lambda p: number(None if p.on_cpu else p.gpus, "d"),
    "batch": lambda p: number(p.batch, "d"),
    "size": lambda p: Cell("{}×{}".format(*p.size), float(p.size[0] * p.size[1])) if p.size else Cell(""),
    "steps": lambda p: number(p.steps, "d"),
    "cfg": lambda p: number(p.cfg, "g"),
    "rounds": lambda p: number(len(p.rounds), "d"),
}
_FACETS = ("load", "software", "precision", "device", "GPUs", "rounds")
"""Columns that a table of one row shows in its caption."""


def all_points(points: Sequence[PointView]) -> list[Table]:
    """Return one table for each kind of work and model."""
    groups: dict[str, list[PointView]] = {}
    for point in points:
        groups.setdefault(f"{point.first.kind} {point.first.model}", []).append(point)
    return [_listed(what, group) for what, group in groups.items()]


def _listed(what: str, points: Sequence[PointView]) -> Table:
    rows = [[read(point) for read in _COLUMNS.values()] for point in points]
    return table(f"Every point of {what}.", tuple(_COLUMNS), rows, keep=2, alone=_FACETS)


def meanings(tables: Sequence[Table]) -> str:
    """Explain the columns, once for all tables."""
    heads = {column for found in tables for column in found.columns}
    return " ".join(meaning for column, meaning in _MEANINGS.items() if column in heads)


_MEANINGS = {
    "per second": "Per second: images, samples or requests, over all GPUs.",
    "seconds": "Seconds: median time of one batch of images, one training step or one request.",
    "spread, s": "Spread: lowest to highest round, or 5th to 95th percentile of single units for one round.",
    "peak GiB": "Peak: memory that torch reserved, highest of all devices.",
    "tensors GiB": "Tensors: memory that tensors used of it.",
    "of peak rate": "Of peak rate: share of the rate that was measured on the device, or specified for it.",
    "compile s": "Compile: extra time of the first unit over a typical one.",
    "PSNR dB": "PSNR and SSIM: against the reference image of the same seed.",
    "J each": "J each: energy per image or sample, in joules.",
    "load": "Load: server and load of the run; engine=nothing runs no model and measures the overhead "
    "around one.",
}


def failures(points: Sequence[PointView], named: Named) -> list[Table]:
    rows = [
        (
            words(point.name),
            Cell(point.status, mark="bad"),
            words(point.message),
            words(_places((r for r in point.rounds if r.measurement.status != "ok"), named)),
            Cell(point.first.command, mark="code"),
        )
        for point in points
        if point.failed
    ]
    heads = ("point", "status", "reason", "record", "command")
    return [Table("Failed points.", heads, tuple(rows))] if rows else []


def _places(rounds: Iterable[Stored], named: Named) -> str:
    """Locate the rounds of a point, which all lie in one file."""
    [first, *others] = rounds
    return f"{named(first.file)}:{', '.join(str(one.line) for one in (first, *others))}"


def commands(points: Sequence[PointView], named: Named) -> Table:
    rows = [
        (
            words(point.name),
            words(_places(point.rounds, named)),
            words(f"{point.first.started_at:%Y-%m-%d %H:%M} UTC" if point.first.started_at else ""),
            words(point.first.commit[:12] if point.first.commit else ""),
            Cell("; ".join(dict.fromkeys(r.measurement.command for r in point.rounds)), mark="code"),
        )
        for point in points
    ]
    heads = ("point", "record", "first round", "commit", "command")
    return table("Command and records of each point.", heads, rows, keep=1)


def notes(points: Sequence[PointView]) -> list[Table]:
    points_by_note: dict[str, dict[str, None]] = {}
    for point in points:
        for note in (note for r in point.rounds for note in r.measurement.notes):
            points_by_note.setdefault(note, {})[point.name] = None
    rows = [(words(note), words("; ".join(names))) for note, names in points_by_note.items()]
    return [Table("Notes from the measurements.", ("note", "points"), tuple(rows))] if rows else []


def unreadable(faults: Sequence[Fault], named: Named) -> list[Table]:
    rows = [
        (words(named(fault.file)), number(fault.line, "d"), Cell(fault.reason, mark="bad"))
        for fault in faults
    ]
    heads = ("file", "line", "reason")
    return [Table("Lines without a readable record.", heads, tuple(rows))] if rows else []


def conclusions(entries: Sequence[Entry], best: Sequence[str]) -> list[Table]:
    """Tables of conclusions from the records; comparisons with references only for the `best` points."""
    own = only(conclude(entries), [RECORDS], [])
    shown = type(own)(tuple(s for s in own.statements if _wanted(s, best)), ())
    tables = []
    for topic, rows in conclusion_tables(shown).items():
        heads = ("conclusion", "arithmetic", "notes", "from")
        cells = [[words(row[head]) for head in heads] for row in rows]
        tables.append(Table(f"{topic[0].upper()}{topic[1:]}.", heads, tuple(map(tuple, cells))))
    return tables


def _wanted(statement: Statement, best: Sequence[str]) -> bool:
    return statement.topic != _AGAINST or statement.inputs[0] in best
