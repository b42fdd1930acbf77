"""How much memory a request will take, before it takes it.

The estimate counts what the architecture says has to be alive at the worst moment of a UNet evaluation and of a decode.
The factors in front were fitted to peaks measured on one H200 (benchmarks/memory) and err on the large side. Knows
nothing of devices but their free bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

from calotype.core.errors import DoesNotFitError
from calotype.models.architecture import Architecture

WORKSPACE_BYTES = 256 * 2**20
"""What convolution and attention libraries take for themselves."""
HEADROOM = 0.95
"""Share of free memory that is planned for; the allocator needs some room to cut from."""

UNET_FACTOR = 1.25
DECODE_FACTOR = 1.25


@dataclass(frozen=True)
class Budget:
    """What there is to plan with."""

    free_bytes: int
    where: str
    dtype_bytes: int
    vae_dtype_bytes: int


@dataclass(frozen=True)
class Plan:
    """How a request will be run so that it fits."""

    batch_size: int
    tiled_decode: bool
    peak_bytes: int


def unet_bytes(architecture: Architecture, rows: int, latent_height: int, latent_width: int, dtype_bytes: int) -> int:
    """Activations at the worst moment of one evaluation over `rows` rows (two a picture with guidance)."""
    widths = architecture.unet["block_out_channels"]
    layers = architecture.unet["layers_per_block"]
    skips = sum((layers + 1) * width / 4**level for level, width in enumerate(widths))
    kinds = architecture.unet["down_block_types"]
    # The gated feed-forward layer makes eight times its width beside its input, residual and norm; a resnet after a
    # skip connection holds about six times.
    working = max(
        width * (11 if "CrossAttn" in kind else 6) / 4**level
        for level, (width, kind) in enumerate(zip(widths, kinds, strict=True))
    )
    return ceil(UNET_FACTOR * rows * latent_height * latent_width * (skips + working) * dtype_bytes)


def decode_bytes(architecture: Architecture, height: int, width: int, dtype_bytes: int) -> int:
    """Activations at the worst moment of decoding one picture."""
    widths = architecture.vae["block_out_channels"]
    # The last but one level's channels arrive at full size: input, norm, activation and output are alive together.
    wide = widths[1] if len(widths) > 1 else widths[0]
    full_size = height * width * (3 * wide + 2 * widths[0]) * dtype_bytes
    tokens = (height // architecture.vae_factor) * (width // architecture.vae_factor)
    return ceil(DECODE_FACTOR * max(full_size, tokens**2 * 4))


def plan(
    architecture: Architecture,
    budget: Budget,
    *,
    width: int,
    height: int,
    count: int,
    guided: bool,
    batch_size: int | None = None,
    tile_pixels: int = 512,
) -> Plan:
    """Choose a batch size and whether to decode in tiles; refuse what cannot fit, naming the largest that would."""
    usable = int(budget.free_bytes * HEADROOM) - WORKSPACE_BYTES
    rows_each = 2 if guided else 1
    latent = (height // architecture.vae_factor, width // architecture.vae_factor)
    # Finished latents and pictures are small beside activations, but a large count adds up.
    each = unet_bytes(architecture, rows_each, *latent, budget.dtype_bytes) + 40 * latent[0] * latent[1]
    whole = decode_bytes(architecture, height, width, budget.vae_dtype_bytes)
    side = min(tile_pixels, max(width, height))
    canvas = height * width * 3 * budget.vae_dtype_bytes * 3
    in_tiles = decode_bytes(architecture, side, side, budget.vae_dtype_bytes) + canvas
    tiled = whole > usable
    decode = in_tiles if tiled else whole
    if each > usable or decode > usable:
        raise DoesNotFitError(_too_large(architecture, budget, usable, width, height, max(each, decode), rows_each))
    most = max(1, usable // each)
    if batch_size is not None and batch_size > most:
        raise DoesNotFitError(
            f"batch size {batch_size} at {width}×{height} needs about {_gib(each * batch_size)}, "
            f"{_gib(usable)} of {budget.where} can be used; the largest batch that fits is {most}"
        )
    chosen = min(count, batch_size or min(most, 16))
    return Plan(chosen, tiled, max(each * chosen, decode))


def _too_large(
    architecture: Architecture, budget: Budget, usable: int, width: int, height: int, needed: int, rows: int
) -> str:
    factor, aspect = architecture.vae_factor, width / height
    per_pixel = unet_bytes(architecture, rows, 64, 64, budget.dtype_bytes) / (64 * factor) ** 2
    pixels = max(usable, 0) / (per_pixel + 9 * budget.vae_dtype_bytes)
    fit_height = int(sqrt(pixels / aspect)) // 8 * 8
    fit_width = int(fit_height * aspect) // 8 * 8
    largest = (
        f"the largest picture of this shape that fits is about {fit_width}×{fit_height}"
        if min(fit_width, fit_height) >= 64
        else "not even the smallest picture fits: free some memory or use a smaller model"
    )
    return f"{width}×{height} needs about {_gib(needed)}, {_gib(max(usable, 0))} of {budget.where} can be used; {largest}"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
