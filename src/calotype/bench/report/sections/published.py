"""The section of published tables, each row with our measurement at the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calotype.bench.references.settings_diff import shown_switches
from calotype.bench.references.table_join import JoinedTable, Pair, join_tables
from calotype.bench.references.types import Entry
from calotype.bench.references.units import first, gib, measures, seconds
from calotype.bench.report.aggregate import PointView
from calotype.bench.report.document import Cell, Section, Table, number, table, words

_TIMES = "times as fast"


def published(points: Sequence[PointView], entries: Mapping[str, Entry]) -> Section:
    """Build the section from our own points; peers of the same run have their own section."""
    own = [entries[point.name] for point in points if _counts(point)]
    return Section(
        "published",
        "Published tables",
        "Published tables with at least a third of their rows measured here at the same settings. All rows "
        "are shown in their order. Where several of our points match, the fastest counts.",
        tables=tuple(_table(found) for found in join_tables(own)),
    )


def _counts(point: PointView) -> bool:
    """Inference variants of an ablation are artificial presets; training variants are rows of a table."""
    ours = point.first.system == "calotype"
    return ours and (point.variant is None or point.first.kind == "train")


def _table(found: JoinedTable) -> Table:
    unit = "s" if found.pairs[0].theirs.settings.work == "inference" else "samples/s/GPU"
    heads = (
        *("published row", "theirs", "ours", _TIMES, "their GiB", "our GiB"),
        *("their gain", "our gain", "our point"),
    )
    shapes = [_shape(pair.theirs) for pair in found.pairs]
    same = [part for part in shapes[0] if len(shapes) > 1 and all(part in shape for shape in shapes)]
    names = [", ".join(part for part in shape if part not in same) for shape in shapes]
    rows = [_row(pair, name, unit) for pair, name in zip(found.pairs, names, strict=True)]
    about = found.table.about.partition(";")[0]
    title = f"{found.source.name}: {', '.join((about, *same))}"
    measure = "Seconds" if unit == "s" else "Samples per second per GPU"
    caption = f"{title} ({found.source.file}, line {found.table.line}). {measure}."
    return table(caption, heads, rows, _note(found), keep=4)


def _row(pair: Pair, name: str, unit: str) -> list[Cell]:
    theirs, ours = pair.theirs, pair.ours
    return [
        words(f"{_place(theirs)}: {name}"),
        _figure(theirs, unit, ".4g"),
        Cell("not measured") if ours is None else _figure(ours, unit),
        Cell("") if pair.ratio is None else Cell(f"{pair.ratio:.2f}×", pair.ratio),
        number(_memory(theirs), ".1f"),
        number(None if ours is None else _memory(ours), ".1f"),
        _times(pair.gain_there),
        _times(pair.gain_here),
        words("" if ours is None else ours.id),
    ]


def _times(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.2f}×", value)


def _place(entry: Entry) -> str:
    """Name of the row in its table, or the number of trials it averages."""
    return entry.id.split("/")[2] if entry.trials == 1 else f"mean of {entry.trials}"


def _shape(entry: Entry) -> list[str]:
    """Settings of a row as short texts."""
    settings = entry.settings
    if settings.work == "inference":
        steps = settings.steps
        parts = (
            f"batch {settings.batch}" if settings.batch else "",
            f"{settings.width}×{settings.height}" if settings.width else "",
            f"{steps} step{'s' * (steps > 1)}" if steps else "",
            f"cfg {settings.cfg:g}" if settings.cfg else "",
        )
    else:
        parts = (
            " × ".join(filter(None, (str(settings.num_gpus or ""), settings.gpu))),
            f"batch {settings.micro_batch}" if settings.micro_batch else "",
            f"global batch {settings.global_batch}" if settings.global_batch != settings.micro_batch else "",
            shown_switches(settings) if settings.switches else "",
        )
    return [part for part in parts if part]


def _figure(entry: Entry, unit: str, form: str = "#.4g") -> Cell:
    if entry.outcome != "ok":
        word = "not given" if entry.outcome == "not_given" else entry.outcome
        return Cell(word, mark="bad" if word != "not given" else "")
    if unit != "s":
        return number(measures(entry).get("samples/s/GPU"), form)
    time = first(entry, "time")
    if time is None:
        return Cell("not given")
    shown = number(seconds(time), form)
    return Cell(f"{shown.text}–{number(time.high, form).text}", shown.order) if time.high else shown


def _memory(entry: Entry) -> float | None:
    held = [gib(figure) for figure in entry.figures if figure.what == "peak_memory"]
    return max(held, default=None)


def _note(found: JoinedTable) -> str:
    """List the differences that all rows share, then the flags."""
    pairs = [pair for pair in found.pairs if pair.differences]
    differing = [[str(one) for one in pair.differences.found] for pair in pairs if pair.differences]
    everywhere = [one for one in differing[0] if all(one in other for other in differing)]
    unstated = dict.fromkeys(one for pair in pairs if pair.differences for one in pair.differences.unsaid)
    ranges = any(f.high is not None for pair in found.pairs for f in pair.theirs.figures if f.what == "time")
    gains = any(pair.gain_there for pair in found.pairs)
    flags = dict.fromkeys(
        f"Row {_place(pair.theirs)}: {flag.certainty}: {flag.reason}."
        for pair in found.pairs
        for flag in pair.theirs.flags
    )
    parts = (
        f"Different in every row: {'; '.join(everywhere)}." if everywhere else "",
        f"Stated by one side only: {', '.join(unstated)}." if unstated else "",
        "For a range, the fast end is compared." if ranges else "",
        "Gain: times as fast as the row without switches, theirs or ours." if gains else "",
        "Memory: theirs as published, ours as reserved by torch.",
    )
    return "\n".join((" ".join(filter(None, parts)), *flags))
