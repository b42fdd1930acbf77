"""The FLOPs of one training sample, counted once for the common models.

Attention's matrix products are included. The backward pass counts as twice the forward pass. Recomputation by
gradient checkpointing does not count, so that it cannot raise the MFU.
"""

from __future__ import annotations

from calotype.models.architecture import Architecture
from calotype.spec.recipe import Recipe
from calotype.spec.recipe_sections import PRECOMPUTED_FORMATS

# TFLOP of one sample at the model's native size.
_UNET = {"sd15": 0.803, "sd2-base": 0.804, "sdxl": 6.76}
_TEXT = {"sd15": 0.013, "sd2-base": 0.045, "sdxl": 0.013 + 0.098}
_FULL_TRAINING = ("unet", "unet_and_text")
_VAE_ENCODE = {512: 1.12, 1024: 4.88}


def training_tflop(architecture: Architecture, recipe: Recipe) -> float | None:
    """TFLOP to train on one sample; None if not counted: other models or sizes, or partial training."""
    name, size = architecture.name, architecture.native_size
    at_native_size = recipe.model.resolution in (None, size) and not recipe.data.buckets
    if name not in _UNET or not at_native_size or recipe.model.train not in _FULL_TRAINING:
        return None
    unet = 3 * _UNET[name]
    text = (3 if recipe.trains_text_encoders else 1) * _TEXT[name]
    vae_encode = 0.0 if recipe.data.keep_latents else _VAE_ENCODE[size]
    return unet if recipe.data.kind in PRECOMPUTED_FORMATS else unet + text + vae_encode
