"""Between pictures and latents: encode, decode, and decode in tiles when a picture is large.

Knows nothing of noise. Latents here are in the UNet's scale; the autoencoder's own scale stays inside.
"""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor

from calotype.core.errors import CalotypeError
from calotype.models.model import Model

TILE_PIXELS = 512
TILE_OVERLAP = 0.25


class NotAPictureError(CalotypeError):
    """The model's numbers left the range of numbers."""


class Autoencoder:
    """A model's VAE with its scale."""

    def __init__(self, model: Model) -> None:
        self._vae = model.vae
        self._scale = float(model.architecture.vae.get("scaling_factor", 0.18215))
        self._shift = float(model.architecture.vae.get("shift_factor") or 0.0)
        self._factor = model.architecture.vae_factor

    @torch.inference_mode()
    def encode(self, pixels: Tensor) -> Tensor:
        """Latents (fp32) of pixels in −1…1; the distribution's mode, so that the same picture is the same latent."""
        distribution = self._vae.encode(pixels.to(self._device_and_dtype()[0], self._device_and_dtype()[1])).latent_dist
        return (distribution.mode().float() - self._shift) * self._scale

    @torch.inference_mode()
    def decode(self, latents: Tensor, *, tiled: bool) -> list[Image.Image]:
        """Pictures of latents, one at a time: a decoder's memory is many times its picture's."""
        return [to_image(self._decode_one(latent[None], tiled)) for latent in latents]

    def _decode_one(self, latent: Tensor, tiled: bool) -> Tensor:
        device, dtype = self._device_and_dtype()
        if tiled:
            self._vae.enable_tiling()
            self._vae.tile_sample_min_size = TILE_PIXELS
            self._vae.tile_latent_min_size = TILE_PIXELS // self._factor
            self._vae.tile_overlap_factor = TILE_OVERLAP
        else:
            self._vae.disable_tiling()
        scaled = latent / self._scale + self._shift
        return self._vae.decode(scaled.to(device, dtype), return_dict=False)[0][0]

    def _device_and_dtype(self) -> tuple[torch.device, torch.dtype]:
        parameter = next(self._vae.parameters())
        return parameter.device, parameter.dtype


def to_image(pixels: Tensor) -> Image.Image:
    """A picture from one (3, height, width) tensor in −1…1; refuses what is not a number instead of showing black."""
    bytes_ = ((pixels.float() / 2 + 0.5).clamp(0, 1) * 255).round()
    finite = torch.isfinite(pixels).all()
    if not bool(finite):
        raise NotAPictureError(
            "the picture came out as NaN or infinity: the numbers outgrew the precision. Use bf16 or fp32 "
            "(--precision), a VAE made for fp16, or a lower cfg"
        )
    return Image.fromarray(bytes_.to(torch.uint8).permute(1, 2, 0).cpu().numpy())


def to_pixels(image: Image.Image) -> Tensor:
    """One (3, height, width) tensor in −1…1."""
    rgb = image.convert("RGB")
    flat = torch.frombuffer(bytearray(rgb.tobytes()), dtype=torch.uint8)
    return flat.reshape(rgb.height, rgb.width, 3).permute(2, 0, 1).float() / 127.5 - 1
