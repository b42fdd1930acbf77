"""Presets are lists of passes, applied in order or refused with what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from calotype.core.errors import NotFoundError
from calotype.engine.engine import Engine
from calotype.engine.presets import PRESETS, apply_preset
from calotype.models.model import Model

applied: list[str] = []


@dataclass
class Noted:
    """A pass that only notes that it was applied."""

    name: str
    lacks: str | None = None
    tolerance: float = field(default=0.0)

    def missing(self, model: Model) -> str | None:
        return self.lacks if model.unet else None

    def apply(self, model: Model) -> None:
        applied.append(f"{self.name} on {model.architecture.name}")


def test_passes_are_applied_in_order(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    applied.clear()
    monkeypatch.setitem(PRESETS, "fast", (Noted("channels_last"), Noted("compile")))
    apply_preset(engine.model, "fast")
    assert applied == ["channels_last on shrunk-emoji", "compile on shrunk-emoji"]


def test_a_pass_that_cannot_be_applied_says_what_it_lacks(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied.clear()
    monkeypatch.setitem(PRESETS, "fp8", (Noted("channels_last"), Noted("fp8", lacks="this GPU has no fp8")))
    with pytest.raises(NotFoundError, match="preset 'fp8' needs the pass 'fp8', and this GPU has no fp8"):
        apply_preset(engine.model, "fp8")
    assert applied == []


def test_the_baseline_is_no_pass_at_all() -> None:
    assert PRESETS["baseline"] == ()
