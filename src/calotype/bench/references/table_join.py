"""Joins published tables row by row with our measurements at the same settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calotype.bench.references.aggregate import aggregate_trials
from calotype.bench.references.load import entries, entries_in, sources
from calotype.bench.references.nearest import comparable
from calotype.bench.references.settings_diff import Differences, differences
from calotype.bench.references.types import Entry
from calotype.bench.references.units import SPEEDS, Measure, measures
from calotype.spec.published_results import Settings, Source, Table

_SHAPES = {
    "inference": ("batch", "width", "height", "steps", "cfg", "num_gpus"),
    "training": ("micro_batch", "global_batch", "num_gpus"),
}
_Value = bool | int | float | str
_AS_IS: dict[str, dict[str, _Value]] = {"nemo": {"channels_last": True}}
"""Our switches that a source always has on: those that its ablation turns off."""
_OURS_FOR: dict[tuple[str, _Value], tuple[str, _Value | None]] = {
    ("model.unet_config.use_flash_attention", True): ("attention", "flash"),
    ("model.unet_config.use_flash_attention", False): ("attention", "math"),
    ("model.inductor", True): ("compile", True),
    ("model.inductor_cudagraphs", True): ("cuda_graphs", True),
    ("model.capture_cudagraph_iters", 10): ("cuda_graphs", True),
    ("model.fused_opt", False): ("optimizer.fused", False),
    ("model.channels_last", False): ("channels_last", None),
}
"""Maps a source's switch to ours; None if ours is then off. EMA is a setting, not a switch."""
_EMA = "model.use_ema"
_MIN_SHARE = 1 / 3
"""Minimum share of a table's rows measured here: fewer leave mostly gaps, and the headline covers them."""


@dataclass(frozen=True)
class Pair:
    """A published row and our fastest entry at its settings."""

    theirs: Entry
    ours: Entry | None
    differences: Differences | None
    """None without an entry of ours."""
    gain_there: float | None
    """Speed over the same work without the row's switches."""
    gain_here: float | None

    @property
    def ratio(self) -> float | None:
        """Our speed per GPU divided by the row's."""
        if self.ours is None:
            return None
        mine, other = measures(self.ours), measures(self.theirs)
        shared: Measure | None = next((name for name in SPEEDS if name in mine and name in other), None)
        return mine[shared] / other[shared] if shared else None


@dataclass(frozen=True)
class JoinedTable:
    source: Source
    table: Table
    pairs: tuple[Pair, ...]
    """Every row of the table, with or without an entry of ours."""


def join_tables(records: Sequence[Entry]) -> list[JoinedTable]:
    """Return every published table with at least a third of its rows measured here.

    A table whose matched rows all repeat another table is left out.
    """
    joined = []
    for source in sources():
        rows = {table.name: aggregate_trials(entries_in(source, table)) for table in source.tables}
        repeated = {entry.repeats for own in rows.values() for entry in own}
        for table in source.tables:
            own = rows[table.name]
            if (len(own) == 1 and own[0].id in repeated) or _is_time_series(own):
                continue
            pairs = tuple(_pair(entry, source.name, records) for entry in own)
            ours = [pair for pair in pairs if pair.ours]
            new = any(pair.theirs.repeats is None for pair in ours)
            if new and _MIN_SHARE * len(pairs) <= len(ours):
                joined.append(JoinedTable(source, table, pairs))
    return joined


def _is_time_series(own: Sequence[Entry]) -> bool:
    """Whether a table's rows are readings of one run, whose result is in another table."""
    return len(own) > 1 and len({repr((_shape(e.settings), e.settings.switches)) for e in own}) == 1


def _pair(theirs: Entry, source: str, records: Sequence[Entry]) -> Pair:
    wanted = _translated(theirs.settings.switches, source)
    matching = [entry for entry in records if wanted is not None and _same(entry, theirs, wanted)]
    # A source that does not state EMA is compared with runs without it first.
    ours = max(matching, key=lambda one: (not one.settings.ema, _speed(one)), default=None)
    gain = _gain_there(theirs)
    if ours is None:
        return Pair(theirs, None, None, gain, None)
    differing = differences(ours.settings, theirs.settings)
    return Pair(theirs, ours, differing, gain, _gain_here(ours, theirs, source, records))


def _translated(switches: Mapping[str, _Value], source: str) -> dict[str, _Value] | None:
    """Return the switches that ours needs; None if a switch has no counterpart."""
    wanted = dict(_AS_IS.get(source, {}))
    for named in switches.items():
        if named[0] == _EMA:
            continue
        if named not in _OURS_FOR:
            return None
        key, value = _OURS_FOR[named]
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
    return wanted


def _same(ours: Entry, theirs: Entry, wanted: Mapping[str, _Value]) -> bool:
    """Whether ours did the row's work; GPU and precision may differ."""
    if not comparable(ours, theirs) or theirs.outcome == "not_given":
        return False
    mine, other = ours.settings, theirs.settings
    if other.ema is not None and mine.work == "training" and bool(mine.ema) != other.ema:
        return False
    if mine.work == "training" and mine.switches != wanted:
        return False
    return _shape(mine) == _shape(other)


def _shape(settings: Settings) -> tuple[object, ...]:
    return tuple(getattr(settings, name) for name in _SHAPES.get(str(settings.work), ()))


def _speed(entry: Entry) -> float:
    found = measures(entry)
    return next((found[name] for name in SPEEDS if name in found), 0.0)


def _gain_there(theirs: Entry) -> float | None:
    """Return the speed over the row of the same source, GPU and shape without switches."""
    if not theirs.settings.switches:
        return None
    own = (entry for entry in entries() if entry.source == theirs.source and entry.repeats is None)
    return _gain(theirs, own, {})


def _gain_here(ours: Entry, theirs: Entry, source: str, records: Sequence[Entry]) -> float | None:
    if not theirs.settings.switches:
        return None
    own = (entry for entry in records if entry.run == ours.run and not entry.settings.ema)
    return _gain(ours, own, _AS_IS.get(source, {}))


def _gain(entry: Entry, others: Iterable[Entry], plain: Mapping[str, _Value]) -> float | None:
    settings = entry.settings
    base = next(
        (
            other
            for other in others
            if other.settings.switches == plain
            and comparable(other, entry)
            and other.settings.gpu == settings.gpu
            and _shape(other.settings) == _shape(settings)
        ),
        None,
    )
    return _speed(entry) / _speed(base) if base and _speed(base) and _speed(entry) else None
