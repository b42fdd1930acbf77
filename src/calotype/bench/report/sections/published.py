"""Published tables with ours in the same rows. Measures and compares nothing itself."""

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
    """Of our own points; peers of the same run have a section of their own."""
    own = [entries[point.name] for point in points if _counts(point)]
    return Section(
        "published",
        "Published tables beside ours",
        "Published tables of which a third or more was measured here at the same settings, every row in its "
        "place. Of several points of ours the fastest.",
        tables=tuple(_table(found) for found in join_tables(own)),
    )


def _counts(point: PointView) -> bool:
    """An ablation's variants of pictures are presets nobody uses; those of training are a table's rows."""
    ours = point.first.system == "calotype"
    return ours and (point.variant is None or point.first.kind == "train")


def _table(found: JoinedTable) -> Table:
    unit = "s" if found.pairs[0].theirs.settings.work == "inference" else "samples/s/GPU"
    heads = (
        *("published row", "theirs", "ours", _TIMES, "their GiB", "our GiB"),
        *("it gives there", "it gives here", "point of ours"),
    )
    shapes = [_shape(pair.theirs) for pair in found.pairs]
    same = [part for part in shapes[0] if len(shapes) > 1 and all(part in shape for shape in shapes)]
    names = [", ".join(part for part in shape if part not in same) for shape in shapes]
    rows = [_row(pair, name, unit) for pair, name in zip(found.pairs, names, strict=True)]
    about = found.table.about.partition(";")[0]
    told = f"{found.source.name}: {', '.join((about, *same))}"
    measure = "Seconds" if unit == "s" else "Samples a second of one GPU"
    caption = f"{told} ({found.source.file}, line {found.table.line}). {measure}."
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
    """Which row it is in its table; of trials, all of them."""
    return entry.id.split("/")[2] if entry.trials == 1 else f"mean of {entry.trials}"


def _shape(entry: Entry) -> list[str]:
    """What a row varies, and what it does not."""
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
            f"{settings.global_batch} an update" if settings.global_batch != settings.micro_batch else "",
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
    """What differs in every row once, then what is flagged."""
    pairs = [pair for pair in found.pairs if pair.differences]
    told = [[str(one) for one in pair.differences.found] for pair in pairs if pair.differences]
    everywhere = [one for one in told[0] if all(one in other for other in told)]
    unsaid = dict.fromkeys(one for pair in pairs if pair.differences for one in pair.differences.unsaid)
    ranges = any(f.high is not None for pair in found.pairs for f in pair.theirs.figures if f.what == "time")
    gains = any(pair.gain_there for pair in found.pairs)
    flags = dict.fromkeys(
        f"Row {_place(pair.theirs)}: {flag.certainty}: {flag.reason}."
        for pair in found.pairs
        for flag in pair.theirs.flags
    )
    parts = (
        f"Different in every row: {'; '.join(everywhere)}." if everywhere else "",
        f"Said by one only: {', '.join(unsaid)}." if unsaid else "",
        "Against a range its fast end counts." if ranges else "",
        "It gives: times as fast as the row, of theirs or of ours, that turns nothing." if gains else "",
        "Memory: theirs as the source has it, ours what torch reserved.",
    )
    return "\n".join((" ".join(filter(None, parts)), *flags))
