"""Implements the text nodes: encode text to CONDITIONING."""

from __future__ import annotations

from typing import Any

from calotype.engine.text_encoder import Conditioning
from calotype.models.architecture import Architecture
from calotype.workflow.node_api import Context
from calotype.workflow.nodes.impl.conditioning_masks import Pairs
from calotype.workflow.nodes.value_types import ClipValue


def encode(context: Context, text: str, clip: ClipValue) -> tuple[Pairs]:
    return _encoded(context, clip, text)


def encode_sdxl(
    context: Context,
    clip: ClipValue,
    width: int,
    height: int,
    crop_w: int,
    crop_h: int,
    target_width: int,
    target_height: int,
    text_g: str,
    text_l: str,
) -> tuple[Pairs]:
    sizes = {
        "width": width,
        "height": height,
        "crop_w": crop_w,
        "crop_h": crop_h,
        "target_width": target_width,
        "target_height": target_height,
    }
    return _encoded(context, clip, (text_l, text_g), **sizes)


def encode_refiner(
    context: Context, clip: ClipValue, ascore: float, width: int, height: int, text: str
) -> tuple[Pairs]:
    return _encoded(context, clip, text, aesthetic_score=ascore, width=width, height=height)


def _encoded(context: Context, clip: ClipValue, text: str | tuple[str, ...], **options: Any) -> tuple[Pairs]:
    engine = context.models.for_text(clip)
    architecture = engine.model.architecture
    if not isinstance(text, str) and len(architecture.text_encoders) == 1:
        # Models with one encoder use the text of the larger one.
        text = text[-1]
    encoded: Conditioning = engine.encode(text, skipped_layers(clip.last_layer, architecture))
    pooled = {} if encoded.pooled is None else {"pooled_output": encoded.pooled.cpu()}
    return ([(encoded.context.cpu(), {**pooled, **options})],)


def skipped_layers(last_layer: int | None, architecture: Architecture) -> int:
    """How many layers before its default one an encoder stops; −1 is one after it, which SDXL skips."""
    if last_layer is None:
        return 0
    layers = min(int(config["num_hidden_layers"]) for config in architecture.text_encoders)
    if architecture.family == "sd2":
        # Stable Diffusion 2's last layer was never used, and most of its files do not have it.
        layers += 1
    # A number beyond the layer count means the last layer, as in ComfyUI.
    stop = last_layer if -last_layer <= layers else -1
    if architecture.family == "sd1":
        return -stop - 1
    return max(-stop - 2, 0 if architecture.family == "sd2" else -1)
