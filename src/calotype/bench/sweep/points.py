"""Expands a sweep to the list of its points.

A peer gets one point for all of our points that differ only in settings it does not have.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from calotype.bench.inference import points as inference
from calotype.bench.sweep.axes import combinations, name_of, typed
from calotype.bench.training import points as training
from calotype.core.errors import Problem, RequestError
from calotype.spec.bench_job import OURS, OURS_ALONE, InferenceJob, Point, System, TrainJob
from calotype.spec.recipe import with_tuples
from calotype.spec.records.measurement import Setting
from calotype.spec.sweep import Sweep
from calotype.spec.validation_errors import problems_of
from calotype.train.recipes import named_values

_OPTIONS = {"inference": ("model", "prompt"), "train": ("recipe",)}
"""Settings with their own command-line option, because they may contain any text."""


def load_sweep(name: str) -> Sweep:
    """Load the sweep `name`: a shipped one or a YAML file."""
    return parse_sweep(named_values(name, "sweep"))


def parse_sweep(values: Mapping[str, Any]) -> Sweep:
    """Parse a sweep from plain values; raise RequestError with every problem."""
    try:
        return Sweep.model_validate(with_tuples(values))
    except ValidationError as error:
        raise RequestError(problems_of(Sweep, error)) from None


def points_of(sweep: Sweep, *, device: str | None = None) -> list[Point]:
    """Return every point once; raise one error with the problems of all points."""
    points: dict[str, Point] = {}
    problems: list[Problem] = []
    for varied in combinations(sweep.points, sweep.axes):
        for system in sweep.systems:
            try:
                point = _point(sweep, varied, system, device)
                points.setdefault(point.id, point)
            except RequestError as error:
                problems += [_placed(varied, one) for one in error.problems]
    if problems:
        # A problem that also affects a peer is reported once.
        raise RequestError(list({(one.field, one.message): one for one in problems}.values()))
    return list(points.values())


def _placed(varied: Mapping[str, Setting], problem: Problem) -> Problem:
    """Add the name of the point to a problem."""
    field = ": ".join(filter(None, (name_of(varied), problem.field)))
    return Problem(field, problem.message, problem.value)


def _point(sweep: Sweep, varied: Mapping[str, Setting], system: System, device: str | None) -> Point:
    alone = () if system == OURS else OURS_ALONE[sweep.kind]
    own = {name: value for name, value in varied.items() if name not in alone}
    everything = {name: value for name, value in {**sweep.settings, **own}.items() if name not in alone}
    job: InferenceJob | TrainJob
    make = inference.job_of if sweep.kind == "inference" else training.job_of
    job = make(everything, system, device=device, units=sweep.units, warmup=sweep.warmup)
    fixed = [name for name, values in sweep.axes.items() if len(values) == 1]
    shown = {name: value for name, value in own.items() if name not in fixed}
    words = [name_of(shown), *([] if system == OURS else [system])]
    return Point(
        name=" ".join(word for word in words if word) or "only",
        settings=own,
        job=job,
        command=_command(sweep, everything, system, device),
    )


def _command(sweep: Sweep, settings: Mapping[str, Setting], system: System, device: str | None) -> str:
    """Return the command that measures the point again, with our point if it is a peer's."""
    words = ["calotype", "bench", sweep.kind, "--out", "OUT"]
    words += [] if system == OURS else ["--against", system]
    counts = {"--units": sweep.units, "--warmup": sweep.warmup, "--device": device}
    words += [f"{option}={count}" for option, count in counts.items() if count is not None]
    own = {name: value for name, value in settings.items() if name in _OPTIONS[sweep.kind]}
    words += [f"--{name}={value}" for name, value in own.items() if value is not None]
    axes = [typed(name, value) for name, value in settings.items() if name not in own]
    return shlex.join([*words, *(["--sweep", *axes] if axes else [])])


def with_systems(sweep: Sweep, against: Sequence[System]) -> Sweep:
    """Add peers to a sweep."""
    return sweep.model_copy(update={"systems": tuple(dict.fromkeys([*sweep.systems, *against]))})
