"""Recipes by name or file with dotted overrides, and where each value came from; tables of them likewise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from yaml import YAMLError  # type: ignore[import-untyped]  # only its error's name is wanted

from calotype.core.errors import NotFoundError, Problem, RequestError, near_matches
from calotype.spec.benchmark_table import BenchmarkTable
from calotype.spec.problems import problems_of
from calotype.spec.recipe import Recipe, with_tuples

DEFAULT, OVERRIDE = "default", "command line"


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe, and for each dotted key the place its value came from."""

    recipe: Recipe
    sources: Mapping[str, str]


def recipe_names() -> list[str]:
    """The recipes that come with Calotype."""
    return _names_in("recipe")


def table_names() -> list[str]:
    """The tables of benchmarks that come with Calotype."""
    return _names_in("table")


def load_table(name: str) -> BenchmarkTable:
    """The table `name` (ours, or a YAML file)."""
    text, source = _read(name, "table")
    try:
        return BenchmarkTable.model_validate(with_tuples(_parse_yaml(text, source)))
    except ValidationError as error:
        raise RequestError(problems_of(BenchmarkTable, error)) from None


def named_values(name: str, what: str) -> dict[str, Any]:
    """The values of one of our YAML files of a kind (`recipe`, `table`, `sweep`), or of a file."""
    return _parse_yaml(*_read(name, what))


def load_recipe(name: str, overrides: Sequence[str] = ()) -> ResolvedRecipe:
    """The recipe `name` (ours, or a YAML file) with `a.b=c` overrides on top."""
    text, source = _read(name, "recipe")
    layers = [(source, _parse_yaml(text, source)), (OVERRIDE, _parse_overrides(overrides))]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer_source, layer in layers:
        _merge(values, layer)
        sources |= dict.fromkeys(flat(layer), layer_source)
    recipe = Recipe.parse(values)
    return ResolvedRecipe(
        recipe, {key: sources.get(key, DEFAULT) for key in flat(recipe.model_dump(mode="json"))}
    )


def as_written(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Every value of a recipe as `load_recipe` would have it, also where that refuses some of them."""
    values: dict[str, Any] = Recipe().model_dump(mode="json")
    for layer in (_parse_yaml(*_read(name, "recipe")), _parse_overrides(overrides)):
        _merge(values, layer)
    return values


def _names_in(what: str) -> list[str]:
    names = (file.name for file in files(f"calotype.{what}s").iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def _read(name: str, what: str) -> tuple[str, str]:
    """The text of one of our recipes or tables, or of a file, and what to call it."""
    ours = _names_in(what)
    if name in ours:
        return (files(f"calotype.{what}s") / f"{name}.yaml").read_text(encoding="utf-8"), f"{what} {name}"
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path.read_text(encoding="utf-8"), str(path)
    raise NotFoundError(
        f"no {what} {name!r}: not a YAML file and not one of ours; {near_matches(name, ours)}"
    )


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        values = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise RequestError([Problem(source, f"is not valid YAML: {_one_line(error)}")]) from None
    if not isinstance(values, dict):
        raise RequestError([Problem(source, f"should hold keys and values, holds a {type(values).__name__}")])
    return {str(key): value for key, value in values.items()}


def _parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    for text in overrides:
        if "=" not in text or not text.partition("=")[0].strip():
            raise RequestError(
                [Problem("override", f"{text!r} should be KEY=VALUE, for instance trainer.devices=2", text)]
            )
    try:
        values = OmegaConf.to_container(OmegaConf.from_dotlist(list(overrides)), resolve=True)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise RequestError([Problem("override", f"is not valid: {_one_line(error)}")]) from None
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
