"""Layered settings: YAML with `a.b=c` overrides on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]  # only its error's name is wanted

from calotype.core.errors import Problem, RequestError


def parse_yaml(text: str | bytes, source: str) -> dict[str, Any]:
    """Parse YAML text or bytes into a dict; `source` names it in errors."""
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        values = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise RequestError([Problem(source, f"is not valid YAML: {_one_line(error)}")]) from None
    if not isinstance(values, dict):
        raise RequestError([Problem(source, f"should hold keys and values, holds a {type(values).__name__}")])
    return {str(key): value for key, value in values.items()}


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse overrides of the form `a.b=c`."""
    for text in overrides:
        if "=" not in text or not text.partition("=")[0].strip():
            raise RequestError(
                [Problem("override", f"{text!r} should be KEY=VALUE, for example trainer.devices=2", text)]
            )
    try:
        values = OmegaConf.to_container(OmegaConf.from_dotlist(list(overrides)), resolve=True)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise RequestError([Problem("override", f"is not valid: {_one_line(error)}")]) from None
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Merge a layer into `into` recursively; the layer wins."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested values to dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
