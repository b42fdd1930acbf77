"""Initial latents of img2img and inpainting: the image's latents, the mask, an inpainting UNet's channels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, interpolate

from calotype.engine.image_inputs import Inputs
from calotype.engine.sampling_run import InpaintMask
from calotype.engine.vae import Vae, to_pixels
from calotype.models.model import Model

NEUTRAL_COLOR = (128, 128, 128)
"""The color of a missing input image: the middle of the range, the most neutral value."""


@dataclass(frozen=True)
class InitLatents:
    """The inputs of a run beside noise."""

    clean: Tensor
    """The input image's latents, one row per image; zeros without an input image."""
    keep: InpaintMask | None = None
    extra_channels: Tensor | None = None


def takes_mask_channels(model: Model) -> bool:
    """Whether the UNet was trained for inpainting: it reads mask and masked image beside the latent."""
    return int(model.unet.config.in_channels) == 2 * model.architecture.latent_channels + 1


def init_latents(model: Model, inputs: Inputs, noise: Tensor, *, tiled: bool) -> InitLatents:
    """The initial latents of inputs that already fit the size of the noise."""
    inpainting = takes_mask_channels(model)
    if inputs.image is None and not inpainting:
        return InitLatents(torch.zeros_like(noise))
    height, width = (side * model.architecture.vae_factor for side in noise.shape[-2:])
    vae = Vae(model)
    image = inputs.image or Image.new("RGB", (width, height), NEUTRAL_COLOR)
    pixels = to_pixels(image)[None].to(noise.device)
    clean = vae.encode(pixels, tiled=tiled).expand_as(noise)
    if inputs.mask is None and not inpainting:
        return InitLatents(clean)
    mask = inputs.mask or Image.new("L", (width, height), 255)
    paint = (to_pixels(mask)[None, :1].to(noise.device) + 1) / 2
    if not inpainting:
        return InitLatents(
            clean, InpaintMask(clean, noise, interpolate(paint, size=noise.shape[-2:], mode="area"))
        )
    # These models were trained on binary masks. A latent pixel is repainted if any of its pixels is: a thin
    # stroke must not vanish.
    paint = (paint >= 0.5).float()
    masked = vae.encode(pixels * (1 - paint), tiled=tiled).expand_as(noise)
    small = adaptive_max_pool2d(paint, noise.shape[-2:]).expand(len(noise), -1, -1, -1)
    return InitLatents(clean, extra_channels=torch.cat([small, masked], dim=1))
