"""How strongly an update counts, where a LoRA says so apart from its tensors.

That is peft's settings file, or the note that diffusers leaves in the metadata. Knows nothing of tensors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from calotype.models.lora.adapter import Target

DIFFUSERS_NOTE = "lora_adapter_metadata"
SECOND_ENCODER_CLASS = "CLIPTextModelWithProjection"

_MAX_ALPHA = 1e6
"""Far beyond any that was trained with."""
_LITERAL = re.compile(r"\^?(\w|\\?\.)+\$?")


class DeclaredScaling:
    """What was declared beside the tensors, for every layer or for some."""

    def __init__(self, metadata: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        self._settings = settings
        try:
            noted = json.loads(metadata.get(DIFFUSERS_NOTE, "{}"))
        except (ValueError, RecursionError):
            noted = {}
        self._noted: Mapping[str, Any] = noted if isinstance(noted, dict) else {}

    @property
    def part(self) -> str | None:
        """The part a peft adapter is for, where its settings name a class that only one part has."""
        mapping = self._settings.get("auto_mapping")
        named = mapping.get("base_model_class") if isinstance(mapping, dict) else None
        return "text_encoder_2" if named == SECOND_ENCODER_CLASS else None

    def alpha(self, target: Target, rank: int) -> float | None:
        """The alpha of one layer's update, or None where none was declared; a ValueError if it is unclear."""
        part, module = target
        source = self._settings or self._of_part(part)
        value = _by_pattern(source.get("alpha_pattern"), module)
        if value is None:
            value = source.get("lora_alpha")
        if not isinstance(value, int | float):
            return None
        # Written so that NaN is refused too.
        if not abs(value) <= _MAX_ALPHA:
            raise ValueError(f"its alpha for {module} is no number up to {_MAX_ALPHA:g}")
        # Rank-stabilised updates are divided by the root of the rank, not by the rank.
        return value * math.sqrt(rank) if source.get("use_rslora") else float(value)

    def _of_part(self, part: str) -> Mapping[str, Any]:
        prefix = f"{part}."
        return {
            key.removeprefix(prefix): value for key, value in self._noted.items() if key.startswith(prefix)
        }


def _by_pattern(patterns: object, module: str) -> object:
    """The value for a module; peft's patterns are ends of module names, or whole ones after a `^`."""
    if not isinstance(patterns, dict):
        return None
    names = (module, module.removeprefix("text_model."))
    for pattern, value in patterns.items():
        # Taken literally: a stranger's regular expression could keep us busy for ever.
        if not _LITERAL.fullmatch(pattern):
            raise ValueError(f"its alpha_pattern {pattern!r} is not the plain name of a module")
        literal = pattern.strip("^$").replace("\\", "")
        if literal in names or (not pattern.startswith("^") and module.endswith(f".{literal}")):
            return value
    return None
