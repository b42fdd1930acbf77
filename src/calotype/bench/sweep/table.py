"""Formats a sweep: one line for each point, the ratios to peers, and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from calotype.bench.sweep.ratios import Ratio, by_point, ratio
from calotype.spec.bench_job import OURS, OURS_ALONE
from calotype.spec.records.measurement import Measurement, Setting
from calotype.spec.statistics import summarize

_GIB = 2**30


def lines_of(measurements: Sequence[Measurement]) -> list[dict[str, str]]:
    """Return the cells of each point by column; all lines have the same columns."""
    points = by_point(measurements)
    lines = [_line(rounds) for rounds in points.values()]
    for peer in dict.fromkeys(m.system for m in measurements if m.system != OURS):
        for line, rounds in zip(lines, points.values(), strict=True):
            speedup = against(rounds, measurements, peer)
            line[f"faster than {peer}"] = str(speedup) if speedup else ""
    columns = [column for column in lines[0] if any(line[column] for line in lines)] if lines else []
    if lines and all(line["status"] == "ok" for line in lines):
        columns.remove("status")
    return [{column: line[column] for column in columns} for line in lines]


def against(rounds: Sequence[Measurement], measurements: Sequence[Measurement], peer: str) -> Ratio | None:
    """Return the speedup of our point over the peer's at the same settings; None without one."""
    if rounds[0].system != OURS:
        return None
    ours = next((m for m in rounds if m.steady), rounds[0])
    theirs = [m for m in measurements if m.system == peer and _shared(m) == _shared(ours)]
    return ratio(rounds, [m for m in theirs if _same_work(m, ours)])


def warnings_of(measurements: Sequence[Measurement]) -> list[str]:
    """Return a warning for each ratio that the spread does not support."""
    warnings = []
    for rounds in by_point(measurements).values():
        for peer in dict.fromkeys(m.system for m in measurements if m.system != OURS):
            compared = against(rounds, measurements, peer)
            if compared and not compared.separated:
                why = f"is within the spread of {compared.low:.2f} to {compared.high:.2f}"
                why = why if compared.repeated else "was measured once, so its spread is unknown"
                claim = f"{rounds[0].point}: {compared.value:.2f}× as fast as {peer}"
                warnings.append(f"{claim} {why}; add --rounds to confirm it")
    return warnings


def _shared(measurement: Measurement) -> tuple[tuple[str, Setting], ...]:
    """Return the settings that a peer has too."""
    alone = OURS_ALONE.get(measurement.kind, ())
    return tuple(sorted((k, v) for k, v in measurement.settings.items() if k not in alone))


def _same_work(one: Measurement, other: Measurement) -> bool:
    """Whether both did the same work, also in fixed settings; a failed point may not record them."""
    both = zip(_work(one), _work(other), strict=True)
    return one.model == other.model and all(a == b for a, b in both if a is not None and b is not None)


def _work(measurement: Measurement) -> list[object]:
    request, trained = measurement.request or {}, (measurement.recipe or {}).get("model", {})
    return [*(request.get(name) for name in _REQUEST), *(trained.get(name) for name in _TRAINED)]


_REQUEST = ("count", "width", "height", "steps", "cfg")
_TRAINED = ("base", "resolution", "micro_batch_size", "global_batch_size")


def _line(rounds: Sequence[Measurement]) -> dict[str, str]:
    first = rounds[0]
    good = [m for m in rounds if m.status == "ok" and m.wall]
    failed = next((m for m in rounds if m.status != "ok"), None)
    line = {"point": first.point, "status": "ok" if failed is None else failed.status}
    line |= _figures(good) if good else dict.fromkeys(_COLUMNS, "")
    return {**line, "why": failed.message or "" if failed else ""}


_COLUMNS = ("seconds", "spread", "per s", "first s", "peak GiB", "TFLOP/s", "of ceiling", "PSNR dB", "J each")


def _figures(good: Sequence[Measurement]) -> dict[str, str]:
    walls = [m.wall for m in good if m.wall]
    medians = [wall.median for wall in walls]
    low = min(medians) if len(medians) > 1 else walls[0].p5
    high = max(medians) if len(medians) > 1 else walls[0].p95
    rates = [m.samples_per_s for m in good if m.samples_per_s]
    peaks = [memory.reserved_bytes for m in good for memory in m.memory]
    work = [m.work for m in good if m.work]
    shares = [w.share_of_ceiling for w in work if w.share_of_ceiling is not None]
    energy = [m.energy_per_sample_j for m in good if m.energy_per_sample_j is not None]
    quality = next((m.quality for m in good if m.quality), None)
    firsts = [m.preparation.warmup_s[0] for m in good if m.preparation.warmup_s]
    values = (
        f"{summarize(medians).median:.4g}",
        f"{low:.4g}–{high:.4g}",
        f"{summarize(rates).median:.4g}" if rates else "",
        f"{max(firsts):.3g}" if firsts else "",
        f"{max(peaks) / _GIB:.1f}" if peaks else "",
        f"{summarize([w.tflops for w in work]).median:.3g}" if work else "",
        f"{summarize(shares).median:.1%}" if shares else "",
        "" if quality is None else "same" if quality.psnr_db is None else f"{quality.psnr_db:.1f}",
        f"{summarize(energy).median:.3g}" if energy else "",
    )
    return dict(zip(_COLUMNS, values, strict=True))
