"""Reads the scaling (alpha) of a LoRA's updates from peft's settings file or diffusers' metadata entry."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from calotype.models.lora.adapter import Target

DIFFUSERS_KEY = "lora_adapter_metadata"
SECOND_ENCODER_CLASS = "CLIPTextModelWithProjection"

_MAX_ALPHA = 1e6
"""Far above any alpha used in training."""
_LITERAL = re.compile(r"\^?(\w|\\?\.)+\$?")


class DeclaredScaling:
    """The scaling that a file declares apart from its tensors, for all layers or some."""

    def __init__(self, metadata: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        self._settings = settings
        try:
            declared = json.loads(metadata.get(DIFFUSERS_KEY, "{}"))
        except (ValueError, RecursionError):
            declared = {}
        self._declared: Mapping[str, Any] = declared if isinstance(declared, dict) else {}

    @property
    def part(self) -> str | None:
        """The part of a peft adapter, if its settings name a class that only one part has."""
        mapping = self._settings.get("auto_mapping")
        class_name = mapping.get("base_model_class") if isinstance(mapping, dict) else None
        return "text_encoder_2" if class_name == SECOND_ENCODER_CLASS else None

    def alpha(self, target: Target, rank: int) -> float | None:
        """The alpha of one layer's update, or None if none is declared; an invalid one is a ValueError."""
        part, module = target
        source = self._settings or self._of_part(part)
        value = _by_pattern(source.get("alpha_pattern"), module)
        if value is None:
            value = source.get("lora_alpha")
        if not isinstance(value, int | float):
            return None
        # The negation rejects NaN too.
        if not abs(value) <= _MAX_ALPHA:
            raise ValueError(f"its alpha for {module} is not a number up to {_MAX_ALPHA:g}")
        # Rank-stabilized updates are divided by the square root of the rank, not by the rank.
        return value * math.sqrt(rank) if source.get("use_rslora") else float(value)

    def _of_part(self, part: str) -> Mapping[str, Any]:
        prefix = f"{part}."
        return {
            key.removeprefix(prefix): value for key, value in self._declared.items() if key.startswith(prefix)
        }


def _by_pattern(patterns: object, module: str) -> object:
    """The value for a module; peft's patterns are suffixes of module names, or whole names after a `^`."""
    if not isinstance(patterns, dict):
        return None
    names = (module, module.removeprefix("text_model."))
    for pattern, value in patterns.items():
        # Matched literally: an untrusted regular expression could run forever.
        if not _LITERAL.fullmatch(pattern):
            raise ValueError(f"its alpha_pattern {pattern!r} is not the plain name of a module")
        literal = pattern.strip("^$").replace("\\", "")
        if literal in names or (not pattern.startswith("^") and module.endswith(f".{literal}")):
            return value
    return None
