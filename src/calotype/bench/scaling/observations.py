"""Training measurements as points of a scaling study: step times by load, and which of them belong together.

Weak scaling is points with the same samples for each GPU, strong scaling points with the same for all. Fits
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import median

from calotype.bench.scaling.fit import Observed
from calotype.bench.scaling.model import Load
from calotype.core.errors import Problem, RequestError
from calotype.spec.bench_job import OURS
from calotype.spec.records.measurement import Measurement
from calotype.spec.records.scaling import MeasuredScaling, Mode

_SIZES = ("micro_batch_size", "global_batch_size")
_NORMAL_QUARTILES = 1.349
"""Between the quartiles of a normal distribution, in standard deviations."""


def usable(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those of our training that have a step time; all have to be of one kind of device and one training."""
    found = [
        m
        for m in measurements
        if (m.kind, m.status, m.system) == ("train", "ok", OURS) and m.samples_per_s and m.recipe
    ]
    devices = sorted({m.device for m in found})
    if len(devices) > 1:
        rule = f"are of {len(devices)} kinds of device ({', '.join(devices)}); study one at a time"
        raise RequestError([Problem("records", rule)])
    apart = next((told for m in found if (told := _told_apart(found[0], m))), None)
    if apart:
        raise RequestError([Problem("records", f"are of different trainings ({apart}); study one at a time")])
    return found


def _told_apart(one: Measurement, other: Measurement) -> str | None:
    """In what two runs differ beside batches and devices, by the first such setting that both know."""
    mine, its = _training(one), _training(other)
    shared = [key for key in mine if key in its and mine[key] != its[key]]
    return f"{shared[0]}: {mine[shared[0]]} and {its[shared[0]]}" if shared else None


def _training(m: Measurement) -> dict[str, object]:
    recipe = m.recipe or {}
    settings = {f"model.{key}": value for key, value in recipe["model"].items() if key not in _SIZES}
    return {"model": m.model, **settings, "data.kind": recipe["data"]["kind"]}


def observed(measurements: Sequence[Measurement]) -> list[Observed]:
    """One for each load, the median of its rounds."""
    rounds: dict[Load, list[Measurement]] = {}
    for m in measurements:
        rounds.setdefault(load_of(m), []).append(m)
    return [
        Observed(
            group[0].point, load, load.samples / median(m.samples_per_s for m in group if m.samples_per_s)
        )
        for load, group in sorted(rounds.items(), key=lambda item: (item[0].gpus, item[0].samples_per_gpu))
    ]


def load_of(m: Measurement) -> Load:
    assert m.recipe is not None
    model = m.recipe["model"]
    each = int(model["global_batch_size"]) // (m.devices * m.nodes)
    return Load(m.nodes, m.devices, each, int(model["micro_batch_size"]))


def spread_of(measurements: Sequence[Measurement]) -> float | None:
    """Standard deviation of a micro-batch on one GPU, from step times of the fewest GPUs; None of one step.

    By the quartiles: a step that the machine interrupted says nothing of the others.
    """
    if not measurements:
        return None
    fewest = min(measurements, key=lambda m: (m.devices * m.nodes, m.started_at is None))
    wall = fewest.series["device" if "device" in fewest.series else "wall"].summary
    if wall.count < 4:
        return None
    return (wall.p75 - wall.p25) / _NORMAL_QUARTILES / sqrt(load_of(fewest).micro_batches)


def scaled(points: Sequence[Observed]) -> list[MeasuredScaling]:
    """Efficiency of every point that has a twin on fewer GPUs, and the twins themselves."""
    ways: dict[Mode, Callable[[Load], int]] = {
        "weak": lambda load: load.samples_per_gpu,
        "strong": lambda load: load.samples,
    }
    found = []
    for mode, same in ways.items():
        groups: dict[tuple[int, int], list[Observed]] = {}
        for point in points:
            groups.setdefault((same(point.load), point.load.micro_batch), []).append(point)
        for group in groups.values():
            if len({point.load.gpus for point in group}) > 1:
                base = min(group, key=lambda point: point.load.gpus)
                found += [_scaled(mode, point, base) for point in group]
    return found


def _scaled(mode: Mode, point: Observed, base: Observed) -> MeasuredScaling:
    each, base_each = (one.samples_per_s / one.load.gpus for one in (point, base))
    return MeasuredScaling(
        mode=mode,
        nodes=point.load.nodes,
        gpus_per_node=point.load.gpus_per_node,
        samples_per_gpu=point.load.samples_per_gpu,
        samples_per_s=point.samples_per_s,
        efficiency=each / base_each,
    )
