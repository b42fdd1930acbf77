"""Encodes images to latents and decodes latents to images, in tiles when an image is large.

A `Vae`'s latents are in the UNet's scale, a `RawVae`'s in its own.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from calotype.core.errors import CalotypeError
from calotype.engine.modules.vae_encoder import latent_mean
from calotype.engine.tiled_vae import TiledVae
from calotype.models.architecture import vae_factor
from calotype.models.model import Model
from calotype.models.skeleton.fallback import Skeleton

TILE_PIXELS = 512
COLORS = 3


class NotAnImageError(CalotypeError):
    """The decoded image holds NaN or infinity."""


Decode = Callable[[Any, Tensor], Tensor]
"""From a VAE and latents in its scale (fp32) to pixels (fp32)."""


def decode_with_diffusers(vae: Any, latents: Tensor) -> Tensor:
    """Decode with diffusers' implementation."""
    return vae.decode(_cast_like(vae, latents), return_dict=False)[0].float()


class RawVae:
    """A VAE without a model; latents are in its own scale."""

    def __init__(self, vae: Any, decode: Decode = decode_with_diffusers) -> None:
        self._vae, self._decode_with = vae, decode
        self.factor = vae_factor(vae.config)
        """Pixels per latent pixel along one side."""
        self._latent_channels = int(vae.config.latent_channels)
        self._side = TILE_PIXELS // self.factor
        self._overlap: int | None = None

    def in_tiles(self, side: int, overlap: int) -> RawVae:
        """A copy with tiles of another size; both arguments in pixels."""
        changed = copy(self)
        changed._side, changed._overlap = side // self.factor, overlap // self.factor
        return changed

    @torch.inference_mode()
    def encode(self, pixels: Tensor, *, tiled: bool) -> Tensor:
        """Latents (fp32) of pixels in −1…1; the distribution's mode, so an image has exactly one latent."""
        tiling = TiledVae(self._side, self.factor, 1, self._latent_channels, self._overlap)
        return tiling.apply(self._encode, pixels) if tiled else self._encode(pixels)

    @torch.inference_mode()
    def decode(self, latents: Tensor, *, tiled: bool) -> Tensor:
        """Pixels (fp32) in about −1…1."""
        tiling = TiledVae(self._side, 1, self.factor, COLORS, self._overlap)
        return tiling.apply(self._decode, latents) if tiled else self._decode(latents)

    def _encode(self, pixels: Tensor) -> Tensor:
        cast = _cast_like(self._vae, pixels)
        if isinstance(self._vae, Skeleton):
            return latent_mean(self._vae, cast).float()
        return self._vae.encode(cast).latent_dist.mode().float()

    def _decode(self, latents: Tensor) -> Tensor:
        return self._decode_with(self._vae, latents)


class Vae:
    """A model's VAE with its scale."""

    def __init__(self, model: Model, decode: Decode = decode_with_diffusers) -> None:
        self._raw = RawVae(model.vae, decode)
        # The VAE's own scale: a separate VAE in the model's place may have another one.
        self._scale = float(model.vae.config.scaling_factor)
        self._shift = float(model.vae.config.shift_factor or 0.0)

    @torch.inference_mode()
    def encode(self, pixels: Tensor, *, tiled: bool) -> Tensor:
        """Latents (fp32) of pixels in −1…1."""
        return (self._raw.encode(pixels, tiled=tiled) - self._shift) * self._scale

    @torch.inference_mode()
    def decode(self, latents: Tensor, *, tiled: bool) -> Tensor:
        """Pixels (fp32) in about −1…1."""
        return self._raw.decode(latents / self._scale + self._shift, tiled=tiled)

    def images(self, latents: Tensor, *, tiled: bool) -> list[Image.Image]:
        """Decode latents one at a time: a decoder takes many times the memory of its image."""
        return [to_image(self.decode(latent[None], tiled=tiled)[0]) for latent in latents]


def _cast_like(vae: Any, values: Tensor) -> Tensor:
    # The VAE's own precision: SDXL's VAE stays in fp32 beside a UNet in fp16.
    parameter = next(vae.parameters())
    return values.to(parameter.device, parameter.dtype)


class DecodedImage(NamedTuple):
    """An 8-bit image, still on the device that decoded it: a quarter of the bytes to copy."""

    colours: Tensor
    """(height, width, 3) bytes."""
    finite: Tensor
    """Whether all values are finite."""


def to_uint8(pixels: Tensor) -> DecodedImage:
    """Quantize one (3, height, width) tensor in −1…1."""
    colours = ((pixels.float() / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8)
    return DecodedImage(colours.permute(1, 2, 0).contiguous(), torch.isfinite(pixels).all())


def to_image(pixels: Tensor) -> Image.Image:
    """An image from one (3, height, width) tensor in −1…1."""
    return to_pil(to_uint8(pixels))


def to_pil(decoded: DecodedImage) -> Image.Image:
    """A PIL image; NaN is refused instead of shown as black."""
    if not bool(decoded.finite):
        raise NotAnImageError(
            "the image holds NaN or infinity: values overflowed the precision. Use bf16 or fp32 "
            "(--precision), a VAE made for fp16, or a lower cfg"
        )
    return Image.fromarray(decoded.colours.cpu().numpy())


def to_pixels(image: Image.Image) -> Tensor:
    """One (3, height, width) tensor in −1…1."""
    rgb = image.convert("RGB")
    flat = torch.frombuffer(bytearray(rgb.tobytes()), dtype=torch.uint8)
    return flat.reshape(rgb.height, rgb.width, 3).permute(2, 0, 1).float() / 127.5 - 1
