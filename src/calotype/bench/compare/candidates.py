"""What is compared: presets by name, each with the precision its model is loaded in. Loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.engine.presets import CUSTOM_PREFIX, PRESETS, all_passes
from calotype.spec.constants import PRECISIONS


@dataclass(frozen=True)
class Candidate:
    """A preset, and the precision asked for with it; None is the device's usual one."""

    preset: str
    precision: str | None = None


def parse_presets(text: str, precision: str | None) -> tuple[Candidate, ...]:
    """`fast,int8,fp8:bf16,passes:own_forward+fp8:bf16`; `precision` is that of all that name none."""
    field = "--presets"
    names = [name.strip() for name in text.split(",") if name.strip()]
    problems = [problem for name in names for problem in _problems(field, name)]
    problems += [Problem(field, f"{name!r} is named twice") for name in _repeated(names)]
    if not names:
        problems.append(Problem(field, f"names no preset; known: {', '.join(PRESETS)}", text))
    if problems:
        raise RequestError(problems)
    return tuple(_candidate(name, precision) for name in names)


def parse_reference(text: str) -> Candidate:
    """A preset, in fp32 unless it says otherwise."""
    problems = _problems("--reference", text)
    if problems:
        raise RequestError(problems)
    return _candidate(text, "fp32")


def _candidate(name: str, precision: str | None) -> Candidate:
    preset, own = _apart(name)
    return Candidate(preset, own or precision)


def _apart(name: str) -> tuple[str, str | None]:
    """The preset and the precision behind it; a list of passes has a colon of its own."""
    start = CUSTOM_PREFIX if name.startswith(CUSTOM_PREFIX) else ""
    preset, colon, precision = name.removeprefix(start).partition(":")
    return start + preset, precision if colon else None


def _problems(field: str, name: str) -> list[Problem]:
    preset, precision = _apart(name)
    found = []
    try:
        all_passes(preset)
    except NotFoundError as error:
        found.append(Problem(field, str(error), name))
    if precision is not None and precision not in PRECISIONS:
        found.append(Problem(field, f"{precision[:60]!r} is no precision; {', '.join(PRECISIONS)}", name))
    return found


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
