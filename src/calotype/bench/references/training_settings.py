"""Converts a training recipe to the settings that references use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calotype.spec.published_results import Family, Part, Settings
from calotype.spec.recipe import Recipe

FAMILIES: dict[str, Family] = {"sd15": "sd1", "sd2-base": "sd2", "sdxl": "sdxl"}
_SIDES = {"sd15": 512, "sd2-base": 512, "sdxl": 1024}
_PRECOMPUTED = ("synthetic_latents", "precomputed")
_SWITCHES = (
    *("model.compile", "model.channels_last", "model.cuda_graphs", "model.gradient_checkpointing"),
    *("model.low_precision_weights", "model.attention", "model.tune_convolutions", "model.width"),
    *("optimizer.name", "optimizer.fused", "optimizer.one_pass"),
    *("trainer.gradient_as_bucket_view", "trainer.overlap"),
)
"""Recipe keys that do not change what is trained; the strategy follows from the number of GPUs."""


def training_settings(recipe: Mapping[str, Any]) -> Settings:
    """Convert a recipe to settings, without the machine it ran on."""
    model, data = recipe["model"], recipe["data"]
    base = str(model["base"])
    side = model.get("resolution") or _SIDES.get(base)
    loop: tuple[Part, ...] = ("unet",) if data["kind"] in _PRECOMPUTED else ("text", "vae", "unet")
    return Settings(
        work="training",
        # A model of another width is a different model.
        model=FAMILIES.get(base) if model.get("width", 1) == 1 else None,
        weights=base,
        trains=model.get("train"),
        precision=model["precision"],
        data="synthetic" if str(data["kind"]).startswith("synthetic") else str(data["kind"]),
        num_workers=data.get("num_workers") or None,
        micro_batch=model["micro_batch_size"],
        global_batch=model["global_batch_size"],
        width=side,
        height=side,
        ema=model["use_ema"],
        loop=loop,
        software="calotype",
        switches=_switches(recipe),
    )


def _switches(recipe: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return switches that differ from the recipe defaults; model switches lose their `model.` prefix."""
    defaults = Recipe().model_dump(mode="json")
    switches = {}
    for name in _SWITCHES:
        part, key = name.split(".")
        value = recipe.get(part, {}).get(key)
        if value is not None and value != defaults[part][key]:
            switches[name.removeprefix("model.")] = value
    return switches
