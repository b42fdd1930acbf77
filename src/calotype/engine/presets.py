"""Named lists of passes. Knows nothing of what a pass does."""

from calotype.core.errors import NotFoundError, near_matches
from calotype.engine.passes import Pass
from calotype.models.model import Model

PRESETS: dict[str, tuple[Pass, ...]] = {
    "baseline": (),
}


def apply_preset(model: Model, preset: str) -> None:
    """Apply a preset's passes in order; none of them if one cannot be."""
    if preset not in PRESETS:
        raise NotFoundError(f"no preset {preset!r}; {near_matches(preset, PRESETS)}")
    for one in PRESETS[preset]:
        lacking = one.missing(model)
        if lacking:
            raise NotFoundError(f"preset {preset!r} needs the pass {one.name!r}, and {lacking}")
    for one in PRESETS[preset]:
        one.apply(model)
