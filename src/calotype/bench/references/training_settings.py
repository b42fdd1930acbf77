"""What a training recipe says, in the words of references. Knows nothing of where it ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calotype.spec.reference import Family, Part, Settings

FAMILIES: dict[str, Family] = {"sd15": "sd1", "sd2-base": "sd2", "sdxl": "sdxl"}
_SIDES = {"sd15": 512, "sd2-base": 512, "sdxl": 1024}
_MADE_BEFOREHAND = ("synthetic_latents", "precomputed")
_SWITCHES = ("compile", "channels_last", "cuda_graphs", "gradient_checkpointing", "low_precision_weights")


def training_settings(recipe: Mapping[str, Any]) -> Settings:
    """What a recipe says; not where it ran."""
    model, data = recipe["model"], recipe["data"]
    base = str(model["base"])
    side = model.get("resolution") or _SIDES.get(base)
    loop: tuple[Part, ...] = ("unet",) if data["kind"] in _MADE_BEFOREHAND else ("text", "vae", "unet")
    return Settings(
        work="training",
        # A model of another width is another model.
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
        switches={key: model[key] for key in _SWITCHES if model.get(key) not in (None, False)},
    )
