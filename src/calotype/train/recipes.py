"""Recipes by name or file with dotted overrides, and where each value came from; tables of them likewise."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from calotype.core.errors import NotFoundError, RequestError, did_you_mean
from calotype.spec.benchmark_table import BenchmarkTable
from calotype.spec.overrides import flatten, merge, parse_overrides, parse_yaml
from calotype.spec.recipe import Recipe, with_tuples
from calotype.spec.validation_errors import problems_of

_log = logging.getLogger(__name__)

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
        return BenchmarkTable.model_validate(with_tuples(parse_yaml(text, source)))
    except ValidationError as error:
        raise RequestError(problems_of(BenchmarkTable, error)) from None


def named_values(name: str, what: str) -> dict[str, Any]:
    """The values of one of our YAML files of a kind (`recipe`, `table`, `sweep`), or of a file."""
    return parse_yaml(*_read(name, what))


def load_recipe(name: str, overrides: Sequence[str] = ()) -> ResolvedRecipe:
    """The recipe `name` (ours, or a YAML file) with `a.b=c` overrides on top."""
    text, source = _read(name, "recipe")
    _warn_of_repeated(overrides)
    layers = [(source, parse_yaml(text, source)), (OVERRIDE, parse_overrides(overrides))]
    _drop_weights_of_other_training(layers[0][1], layers[1][1])
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer_source, layer in layers:
        merge(values, layer)
        sources |= dict.fromkeys(flatten(layer), layer_source)
    recipe = Recipe.parse(values)
    return ResolvedRecipe(
        recipe, {key: sources.get(key, DEFAULT) for key in flatten(recipe.model_dump(mode="json"))}
    )


def _drop_weights_of_other_training(of_file: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Random weights that a file sets for what it trains do not count for other training."""
    own, other = of_file.get("model"), given.get("model")
    if not isinstance(own, dict) or not isinstance(other, Mapping):
        return
    if own.get("weights") == "random" and other.get("train", own.get("train")) != own.get("train"):
        del own["weights"]


def _warn_of_repeated(overrides: Sequence[str]) -> None:
    """A shell makes a hundred words of `data.path=name-{000..099}.tar` that is not quoted."""
    last = {text.partition("=")[0]: text for text in overrides}
    for key, text in last.items():
        count = sum(each.partition("=")[0] == key for each in overrides if each != text) + 1
        if count > 1:
            fix = "quote braces, or the shell takes them"
            _log.warning("%s is given %d times, and only %s counts; %s", key, count, text, fix)


def as_written(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Every value of a recipe as `load_recipe` would have it, also where that refuses some of them."""
    values: dict[str, Any] = Recipe().model_dump(mode="json")
    for layer in (parse_yaml(*_read(name, "recipe")), parse_overrides(overrides)):
        merge(values, layer)
    return values


def _names_in(what: str) -> list[str]:
    names = (file.name for file in files(f"calotype.resources.{what}s").iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def _read(name: str, what: str) -> tuple[str | bytes, str]:
    """The text of one of our recipes or tables, or of a file, and what to call it."""
    ours = _names_in(what)
    if name in ours:
        return (files(f"calotype.resources.{what}s") / f"{name}.yaml").read_text(
            encoding="utf-8"
        ), f"{what} {name}"
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path.read_bytes(), str(path)
    raise NotFoundError(
        f"no {what} {name!r}: not a YAML file and not one of ours; {did_you_mean(name, ours)}"
    )
