"""The headline section: the best point of each kind of work against peers and published references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from calotype.bench.references.aggregate import aggregate_trials
from calotype.bench.references.from_measurement import entry_of_measurement, run_of
from calotype.bench.references.load import distinct
from calotype.bench.references.nearest import Comparison, compare
from calotype.bench.references.report import flagged
from calotype.bench.references.report import rows as reference_rows
from calotype.bench.references.types import Entry
from calotype.bench.report.aggregate import PointView, Spread
from calotype.bench.report.document import Card, Cell, Figure, Section, Table, commands_of, table, words
from calotype.bench.report.plots.bar_chart import Bar, BarChart, bar_chart
from calotype.bench.report.plots.scales import figure
from calotype.bench.report.sections.ablation import ratio_cell
from calotype.bench.report.sections.shape_plots import MADE, SPREAD
from calotype.bench.report.series import name_of
from calotype.bench.sweep.ratios import Ratio, ratio
from calotype.spec.bench_job import OURS, OURS_ALONE

_NEAREST = 5
_SHAPES = ("batch", "micro-batch", "steps", "resolution", "number of GPUs")
"""Differences that distinguish references of one source."""
_WORK = {"inference": "Images", "train": "Training", "serve": "Serving"}


def entries_of(points: Sequence[PointView]) -> dict[str, Entry]:
    """Map each point's name to its entry for references and conclusions."""
    trials = [
        entry_of_measurement(r.measurement, point.name, run_of(r.file))
        for point in points
        for r in point.rounds
    ]
    # The successful rounds of a point take precedence over its failures.
    ordered = sorted(aggregate_trials(trials, median), key=lambda entry: entry.outcome == "ok")
    return {entry.id: entry for entry in ordered}


def champions(points: Sequence[PointView]) -> list[PointView]:
    """Return our point with the most work per GPU for each kind of work, model and kind of data."""
    best: dict[tuple[str, str, str], PointView] = {}
    for point in points:
        # Precomputed latents leave two networks out of the work.
        key = (point.first.kind, point.first.model, str(point.facets.get("data", "")))
        # Points without a model do no work; docs/scaling.md and docs/serving.md give their purpose.
        if point.first.kind == "data" or str(point.first.settings.get("engine")).startswith("nothing"):
            continue
        if point.first.system == OURS and point.rate and (key not in best or _done(point) > _done(best[key])):
            best[key] = point
    return list(best.values())


def _done(point: PointView) -> float:
    """Pixels times evaluations per second, so that fewer steps, smaller images and unguided sampling, whose
    steps are half the work, do not count as faster."""
    pixels = point.size[0] * point.size[1] if point.size else 1
    guided = 1 if point.cfg == 1 else 2
    return _each(point) * pixels * (point.steps or 1) * guided


def _each(point: PointView) -> float:
    return point.rate.middle / point.gpus if point.rate else 0.0


def headline(points: Sequence[PointView], entries: Mapping[str, Entry]) -> Section:
    best = champions(points)
    beside = {point.name: compare(entries[point.name], distinct()) for point in best}
    return Section(
        "headline",
        "Headline",
        "The highest rate of each kind of work per device, and published results for similar settings. "
        "Reference numbers are quoted as published; each row names what is not comparable.",
        cards=tuple(_card(point, points, beside[point.name]) for point in best),
        figures=tuple(
            _figure(point, beside[point.name], count)
            for count, point in enumerate(best, start=1)
            if any(one.quotable for one in beside[point.name].besides)
        ),
        tables=tuple(_table(point, beside[point.name]) for point in best if beside[point.name].besides),
    )


def _card(point: PointView, points: Sequence[PointView], comparison: Comparison) -> Card:
    first, rate = point.first, point.rate
    assert rate is not None
    lines = [f"{point.gpus} × {first.device}", name_of(point)]
    lines.append(_spread(point, rate))
    if point.memory_gib is not None:
        lines.append(f"{point.memory_gib:.1f} GiB peak memory")
    if point.share_of_ceiling is not None:
        # FLOPs are counted from the model; some passes compute with fewer.
        left_out = "; passes skip part of the counted arithmetic" if point.share_of_ceiling > 1 else ""
        lines.append(f"{point.share_of_ceiling:.1%} of the device's peak{left_out}")
    lines += [_quality(point)] if first.kind == "inference" else []
    for peer, speedup in peer_ratios(point, points).items():
        lines.append(f"{speedup} as fast as {peer} in the same run")
    nearest = next((one for one in comparison.besides if one.quotable), None)
    if nearest and nearest.ratio:
        reference = nearest.reference
        system = reference.settings.software or reference.label
        lines.append(
            f"{nearest.ratio:.2f}× {system} on {reference.settings.gpu or 'an unnamed GPU'} ({reference.id})"
        )
    commit = first.commit[:12] if first.commit else "unknown"
    lines.append(f"commit {commit}{' with uncommitted changes' if first.modified else ''}")
    unit = f"{MADE.get(first.kind, 'units')}/s on one {'CPU' if point.on_cpu else 'GPU'}"
    return Card(
        f"{_WORK.get(first.kind, first.kind)}: {first.model}", figure(_each(point)), unit, tuple(lines)
    )


def _spread(point: PointView, rate: Spread) -> str:
    took = point.seconds
    if point.first.kind == "serve" and took:
        return f"a request took {figure(took.middle)} s ({figure(took.low)} to {figure(took.high)})"
    if not point.repeated:
        return "measured once, so the spread is unknown"
    return f"spread {figure(rate.low / point.gpus)} to {figure(rate.high / point.gpus)}"


def _quality(point: PointView) -> str:
    quality = next((m.quality for m in point.good if m.quality), None)
    if quality is None:
        return "images were not compared"
    psnr = "bit-identical" if quality.psnr_db is None else f"PSNR {quality.psnr_db:.1f} dB"
    return f"images: {psnr}, SSIM {quality.ssim:.3f} against {quality.reference}"


def peer_ratios(point: PointView, points: Sequence[PointView]) -> dict[str, Ratio]:
    """Map each peer to the speedup of our point over it at the same settings."""
    ratios = {}
    for other in points:
        if other.first.system != OURS and _shared(other) == _shared(point):
            compared = ratio(*([r.measurement for r in p.rounds] for p in (point, other)))
            if compared:
                ratios[other.first.system] = compared
    return ratios


def _shared(point: PointView) -> tuple[object, ...]:
    own = ("software", *OURS_ALONE.get(point.first.kind, ()))
    facets = tuple((key, value) for key, value in sorted(point.facets.items()) if key not in own)
    return point.rounds[0].file, point.first.kind, point.first.model, facets


def peers(points: Sequence[PointView]) -> Section:
    """The table of our points that have a peer in the same run."""
    rows = [
        (words(point.name), words(point.first.model), words(name_of(point)), words(peer), ratio_cell(found))
        for point in points
        if point.first.system == OURS
        for peer, found in peer_ratios(point, points).items()
    ]
    heads = ("point", "model", "what", "peer", "times as fast")
    note = (
        "Brackets give the lowest and the highest round. A question mark means that the spread is unknown or "
        "larger than the difference."
    )
    tables = (table("Calotype against peers in the same run.", heads, rows, note, keep=1),) if rows else ()
    return Section("peers", "Peers in the same run", tables=tables)


def _figure(point: PointView, comparison: Comparison, count: int) -> Figure:
    known = [beside for beside in comparison.besides if beside.quotable][:_NEAREST]
    measure = known[0].measure
    known = [beside for beside in known if beside.measure == measure]
    ours = known[0].ours or 0.0
    bars = [_own_bar(point, ours)]
    for beside in known:
        settings = beside.reference.settings
        name = " on ".join(filter(None, (settings.software or beside.reference.label, settings.gpu)))
        name = ", ".join(
            [name, *(f"{d.what} {d.theirs}" for d in beside.differences.found if d.what in _SHAPES)]
        )
        bars.append(Bar(name, beside.theirs, f"{figure(beside.theirs or 0)} ({beside.ratio:.2f}×)", color=-1))
    what = f"{point.first.kind} {point.first.model}"
    rows = [(words(bar.name), Cell(bar.text, bar.value)) for bar in bars]
    return Figure(
        f"references-{count}",
        f"Against the nearest references: {what}",
        f"{measure}, higher is better. Brackets give this result divided by the reference. The table lists "
        f"the differing settings. {SPREAD}",
        bar_chart(
            BarChart(
                f"{what} against references",
                "; ".join(f"{bar.name}: {bar.text}" for bar in bars),
                str(measure),
                tuple(bars),
            )
        ),
        Table("Against references: data.", ("system", str(measure)), tuple(rows)),
        commands_of([point.first.command]),
    )


def _own_bar(point: PointView, value: float) -> Bar:
    """Our bar in the unit of the references, with the relative spread of the rate."""
    name, rate = f"this: {point.name}", point.rate
    if rate is None:
        return Bar(name, value, figure(value))
    return Bar(name, value, figure(value), value * rate.low / rate.middle, value * rate.high / rate.middle)


def _table(point: PointView, comparison: Comparison) -> Table:
    shown_rows = reference_rows(comparison, _NEAREST)
    rows = [
        tuple(Cell(text, ratio if "÷" in head and ratio else None) for head, text in row.items())
        for row, ratio in zip(shown_rows, (one.ratio for one in comparison.besides), strict=False)
    ]
    left = len(comparison.besides) - len(rows)
    flags = [f"{line}." for line in flagged(comparison, _NEAREST)]
    more = f"{left} references are less similar; calotype bench compare --all shows them." if left else ""
    caption = f"{point.first.kind} {point.first.model} ({point.name}) against its nearest references."
    return Table(caption, tuple(shown_rows[0]), tuple(rows), "\n".join(filter(None, (more, *flags))))
