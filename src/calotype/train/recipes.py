"""Load recipes and benchmark tables by name or file, with dotted overrides and the source of each value."""

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
    """A recipe, and the source of the value of each dotted key."""

    recipe: Recipe
    sources: Mapping[str, str]


def recipe_names() -> list[str]:
    """The recipes that Calotype ships."""
    return _names_in("recipe")


def table_names() -> list[str]:
    """The benchmark tables that Calotype ships."""
    return _names_in("table")


def load_table(name: str) -> BenchmarkTable:
    """Load the table `name` (a shipped one, or a YAML file)."""
    text, source = _read(name, "table")
    try:
        return BenchmarkTable.model_validate(with_tuples(parse_yaml(text, source)))
    except ValidationError as error:
        raise RequestError(problems_of(BenchmarkTable, error)) from None


def named_values(name: str, what: str) -> dict[str, Any]:
    """The values of a shipped YAML file of a kind (`recipe`, `table`, `sweep`), or of any YAML file."""
    return parse_yaml(*_read(name, what))


def load_recipe(name: str, overrides: Sequence[str] = ()) -> ResolvedRecipe:
    """Load the recipe `name` (a shipped one, or a YAML file) with `a.b=c` overrides applied."""
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
    """Ignore random weights that a file sets for its own kind of training if another kind is trained."""
    base, override = of_file.get("model"), given.get("model")
    if not isinstance(base, dict) or not isinstance(override, Mapping):
        return
    if base.get("weights") == "random" and override.get("train", base.get("train")) != base.get("train"):
        del base["weights"]


def _warn_of_repeated(overrides: Sequence[str]) -> None:
    """Warn of repeated keys: a shell expands unquoted `data.path=name-{000..099}.tar` to a hundred words."""
    last = {text.partition("=")[0]: text for text in overrides}
    for key, text in last.items():
        count = sum(other.partition("=")[0] == key for other in overrides if other != text) + 1
        if count > 1:
            fix = "quote braces, or the shell expands them"
            _log.warning("%s is given %d times, and only %s counts; %s", key, count, text, fix)


def as_written(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Every value of a recipe as `load_recipe` would merge it, even if validation refuses some of them."""
    values: dict[str, Any] = Recipe().model_dump(mode="json")
    for layer in (parse_yaml(*_read(name, "recipe")), parse_overrides(overrides)):
        merge(values, layer)
    return values


def _names_in(what: str) -> list[str]:
    names = (file.name for file in files(f"calotype.resources.{what}s").iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def _read(name: str, what: str) -> tuple[str | bytes, str]:
    """The text of a shipped recipe or table, or of a file, and the name for error messages."""
    shipped = _names_in(what)
    if name in shipped:
        return (files(f"calotype.resources.{what}s") / f"{name}.yaml").read_text(
            encoding="utf-8"
        ), f"{what} {name}"
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path.read_bytes(), str(path)
    raise NotFoundError(
        f"no {what} {name!r}: not a YAML file and not a shipped {what}; {did_you_mean(name, shipped)}"
    )
