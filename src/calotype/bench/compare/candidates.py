"""Parses the presets to compare, each with the precision its model is loaded in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.engine.presets import CUSTOM_PREFIX, PRESETS, all_passes
from calotype.spec.constants import PRECISIONS


@dataclass(frozen=True)
class Candidate:
    """A preset and its precision; None is the device's default."""

    preset: str
    precision: str | None = None


def parse_presets(text: str, precision: str | None) -> tuple[Candidate, ...]:
    """Parse `fast,int8,fp8:bf16,passes:own_forward+fp8:bf16`; `precision` applies where none is given."""
    field = "--presets"
    names = [name.strip() for name in text.split(",") if name.strip()]
    problems = [problem for name in names for problem in _problems(field, name)]
    problems += [Problem(field, f"{name!r} is given twice") for name in _repeated(names)]
    if not names:
        problems.append(Problem(field, f"is empty; give presets of {', '.join(PRESETS)}", text))
    if problems:
        raise RequestError(problems)
    return tuple(_candidate(name, precision) for name in names)


def parse_reference(text: str) -> Candidate:
    """Parse the reference preset, in fp32 by default."""
    problems = _problems("--reference", text)
    if problems:
        raise RequestError(problems)
    return _candidate(text, "fp32")


def _candidate(name: str, precision: str | None) -> Candidate:
    preset, own = _split(name)
    return Candidate(preset, own or precision)


def _split(name: str) -> tuple[str, str | None]:
    """Split a name into preset and precision; a list of passes contains a colon itself."""
    start = CUSTOM_PREFIX if name.startswith(CUSTOM_PREFIX) else ""
    preset, colon, precision = name.removeprefix(start).partition(":")
    return start + preset, precision if colon else None


def _problems(field: str, name: str) -> list[Problem]:
    preset, precision = _split(name)
    problems = []
    try:
        all_passes(preset)
    except NotFoundError as error:
        problems.append(Problem(field, str(error), name))
    if precision is not None and precision not in PRECISIONS:
        rule = f"{precision[:60]!r} is not a precision; choose {', '.join(PRECISIONS)}"
        problems.append(Problem(field, rule, name))
    return problems


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
