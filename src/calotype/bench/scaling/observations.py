"""Converts training measurements to the points of a scaling study, and groups them by scaling mode.

Weak scaling keeps the samples per GPU, strong scaling the samples over all GPUs.
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
"""Interquartile range of a normal distribution, in standard deviations."""


def usable(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return our training measurements with a step time; all must share the device type and the training."""
    result = [
        m
        for m in measurements
        if (m.kind, m.status, m.system) == ("train", "ok", OURS) and m.samples_per_s and m.recipe
    ]
    devices = sorted({m.device for m in result})
    if len(devices) > 1:
        rule = f"contain {len(devices)} device types ({', '.join(devices)}); give records of one"
        raise RequestError([Problem("records", rule)])
    difference = next((text for m in result if (text := _difference(result[0], m))), None)
    if difference:
        raise RequestError(
            [Problem("records", f"contain different trainings ({difference}); give records of one")]
        )
    return result


def _difference(one: Measurement, other: Measurement) -> str | None:
    """Return the first setting, besides batches and devices, that both runs know and that differs."""
    first, second = _training(one), _training(other)
    differing = [key for key in first if key in second and first[key] != second[key]]
    return f"{differing[0]}: {first[differing[0]]} and {second[differing[0]]}" if differing else None


def _training(m: Measurement) -> dict[str, object]:
    recipe = m.recipe or {}
    settings = {f"model.{key}": value for key, value in recipe["model"].items() if key not in _SIZES}
    return {"model": m.model, **settings, "data.kind": recipe["data"]["kind"]}


def observed(measurements: Sequence[Measurement]) -> list[Observed]:
    """Return one point for each load, with the median of its rounds."""
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
    """Return the standard deviation of a micro-batch on one GPU; None with too few steps.

    It comes from the quartiles of the step times on the fewest GPUs, which ignore outliers.
    """
    if not measurements:
        return None
    fewest = min(measurements, key=lambda m: (m.devices * m.nodes, m.started_at is None))
    wall = fewest.series["device" if "device" in fewest.series else "wall"].summary
    if wall.count < 4:
        return None
    return (wall.p75 - wall.p25) / _NORMAL_QUARTILES / sqrt(load_of(fewest).micro_batches)


def scaled(points: Sequence[Observed]) -> list[MeasuredScaling]:
    """Return the efficiency of every point over the point on the fewest GPUs, and that point itself."""
    modes: dict[Mode, Callable[[Load], int]] = {
        "weak": lambda load: load.samples_per_gpu,
        "strong": lambda load: load.samples,
    }
    result = []
    for mode, same in modes.items():
        groups: dict[tuple[int, int], list[Observed]] = {}
        for point in points:
            groups.setdefault((same(point.load), point.load.micro_batch), []).append(point)
        for group in groups.values():
            if len({point.load.gpus for point in group}) > 1:
                base = min(group, key=lambda point: point.load.gpus)
                result += [_scaled(mode, point, base) for point in group]
    return result


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
