"""Converts the settings of an inference sweep to jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.engine.presets import all_passes
from calotype.spec.bench_job import BASELINE_SAMPLER, OURS, InferenceJob, System
from calotype.spec.constants import PRECISIONS
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.measurement import Setting

PROMPT = "a photo of an astronaut riding a horse on mars"
_REQUEST = (
    "steps",
    "cfg",
    "sampler",
    "schedule",
    "seed",
    "prompt",
    "negative_prompt",
    "clip_skip",
    "tile_vae",
)
TEXTS = ("model", "prompt")
"""Settings that are text, even if they look like `2024` or `none`."""
KNOWN = ("model", "batch", "size", "preset", "precision", *_REQUEST)
_SIZE = re.compile(r"(\d+)[x×*](\d+)")


def job_of(
    settings: Mapping[str, Setting],
    system: System,
    *,
    device: str | None = None,
    units: int | None = None,
    warmup: int | None = None,
) -> InferenceJob:
    """Return one point's job; raise one error with every problem of its settings."""
    problems = _problems(settings, system)
    asked: dict[str, Any] = {"prompt": PROMPT, **BASELINE_SAMPLER}
    asked |= {name: settings[name] for name in _REQUEST if name in settings}
    asked["count"] = settings.get("batch", 1)
    size = str(settings["size"]) if "size" in settings else None
    if size is not None and (found := _SIZE.fullmatch(size)):
        asked |= {"width": int(found[1]), "height": int(found[2])}
    elif size is not None:
        problems.append(Problem("size", f"{size!r} should be WIDTHxHEIGHT, for instance 768x512", size))
    request = None
    try:
        request = GenerateRequest.parse(asked)
    except RequestError as error:
        problems += error.problems
    if problems or request is None:
        raise RequestError(problems)
    counts = {"units": units, "warmup": warmup}
    return InferenceJob(
        system=system,
        model=str(settings.get("model", "emoji")),
        preset=str(settings.get("preset", "baseline")) if system == OURS else None,
        precision=_text(settings.get("precision")),
        device=device,
        request=request,
        **{name: count for name, count in counts.items() if count is not None},
    )


def _problems(settings: Mapping[str, Setting], system: System) -> list[Problem]:
    unknown = [name for name in settings if name not in KNOWN]
    problems = [
        Problem(name, f"is not a setting of image generation; {did_you_mean(name, KNOWN)}")
        for name in unknown
    ]
    precision = settings.get("precision")
    if precision is not None and precision not in PRECISIONS:
        problems.append(
            Problem("precision", f"{precision!r} is not one of {', '.join(PRECISIONS)}", precision)
        )
    if system == OURS:
        all_passes(str(settings.get("preset", "baseline")))
    else:
        problems += [
            Problem(name, f"{settings[name]!r} beside {system}: the two are known to agree at {value}")
            for name, value in BASELINE_SAMPLER.items()
            if settings.get(name, value) != value
        ]
    return problems


def _text(value: Setting) -> str | None:
    return None if value is None else str(value)
