"""Estimates the memory of a request and chooses a batch size and tiling that fit.

The estimate counts the activations that, by the architecture, are alive at the peak of a UNet evaluation and
of a decode. The factors were fitted to peaks measured on one H200 (benchmarks/2026-11-15-baseline and
-memory) and err on the large side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod

from calotype.core.errors import DoesNotFitError
from calotype.engine.modules.winograd import MAX_BYTES, REACH
from calotype.engine.vae import TILE_PIXELS
from calotype.models.architecture import Architecture
from calotype.spec.generate_request import MIN_SIDE

WORKSPACE_BYTES = 256 * 2**20
"""Workspace of convolution and attention libraries."""
HEADROOM = 0.95
"""Share of free memory that plans may use; the allocator needs some slack."""
MAX_AT_ONCE = 16
"""Images in a batch without an explicit size; more gain little and delay the first image."""

_PROMPT_WEIGHTS = ("attn2.to_k.weight", "attn2.to_v.weight")
UNET_FACTOR = 1.7
DECODE_FACTOR = 1.25
UNJOINED_FACTOR = 1.2
"""Activations of our decoder on a CPU, where no kernel of ours fuses its sums with their readers.

Measured with the embedded model: 1.03 at 512², 1.12 at 768², 1.13 at 1024².
"""
WINOGRAD_FACTOR = 1.15
"""Activations beside those of library convolutions, for copies with edges and separate sums.

Measured with the embedded model: 1.15 for an evaluation, 1.01 to 1.15 for our decoder at 256² to 1024².
"""
CANVAS_BYTES = 32
"""Per pixel of an image assembled from tiles: colors, weights and the tile's share of both, in fp32."""


@dataclass(frozen=True)
class Extras:
    """Memory that passes take beside activations."""

    resident_bytes: int = 0
    """Weights derived at the first evaluation and kept: 8-bit, Winograd-transformed, a decoder's."""
    activations: float = 1.0
    """Factor on the activations of an evaluation or a decode."""
    graphed: bool = False
    """CUDA graphs keep the UNet's activations allocated, also during a decode."""
    decoder_dtype_bytes: int | None = None
    """Of our own decoder; the VAE may have a wider precision."""
    prompt_bytes: int = 0
    """Cached keys and values of a row's prompt in every layer, until the image is done; per prompt window."""


@dataclass(frozen=True)
class MemoryBudget:
    """The memory available to a plan."""

    free_bytes: int
    where: str
    dtype_bytes: int
    vae_dtype_bytes: int
    extras: Extras = field(default_factory=Extras)

    @property
    def usable_bytes(self) -> int:
        return max(0, int(self.free_bytes * HEADROOM) - WORKSPACE_BYTES - self.extras.resident_bytes)


@dataclass(frozen=True)
class MemoryDemand:
    """The parts of a request that decide its memory."""

    width: int
    height: int
    count: int = 1
    guided: bool = True
    batch_size: int | None = None
    """Images per batch; None for as many as fit."""
    encodes: bool = False
    """Whether there is an input image, which the VAE encodes."""
    tile_vae: bool | None = None
    """Whether to encode and decode in tiles; None for only if needed."""
    most_at_once: int = MAX_AT_ONCE
    """Largest batch if `batch_size` is None."""
    prompt_windows: int = 1
    """Token windows of the longer of both prompts."""


@dataclass(frozen=True)
class _Costs:
    """Memory costs of a batch."""

    evaluation: int
    """Per image, while the UNet runs."""
    kept: int
    """Per image, from its first step until it is decoded."""
    decode: int
    """Per image; images are decoded one at a time."""
    graphed: bool
    tiled: bool

    def peak(self, pictures: int) -> int:
        """Evaluation, then decode; a graph keeps its activations and its own copy of its inputs."""
        evaluation, kept = pictures * self.evaluation, pictures * self.kept
        if self.graphed:
            return evaluation + 2 * kept + self.decode
        return kept + max(evaluation, self.decode)

    def most(self, usable: int) -> int:
        """Number of images that fit."""
        low, high = 0, usable // self.evaluation + 1
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.peak(middle) <= usable else (low, middle)
        return low


@dataclass(frozen=True)
class MemoryPlan:
    """Batch size and tiling with which a request fits."""

    batch_size: int
    tiled: bool
    peak_bytes: int


def unet_bytes(
    architecture: Architecture, rows: int, latent_height: int, latent_width: int, dtype_bytes: int
) -> int:
    """Peak activations of one evaluation over `rows` rows (two per image with guidance)."""
    widths = architecture.unet["block_out_channels"]
    layers = architecture.unet["layers_per_block"]
    skips = sum((layers + 1) * width / 4**level for level, width in enumerate(widths))
    kinds = architecture.unet["down_block_types"]
    # The gated feed-forward layer allocates eight times its width beside its input, residual and norm; a
    # resnet after a skip connection holds about six times.
    working = max(
        width * (11 if "CrossAttn" in kind else 6) / 4**level
        for level, (width, kind) in enumerate(zip(widths, kinds, strict=True))
    )
    return ceil(UNET_FACTOR * rows * latent_height * latent_width * (skips + working) * dtype_bytes)


def decode_bytes(architecture: Architecture, height: int, width: int, dtype_bytes: int) -> int:
    """Peak activations of decoding one image; encoding takes less."""
    widths = architecture.vae["block_out_channels"]
    # The second to last level's channels have full size: input, norm, activation and output live together.
    wide = widths[1] if len(widths) > 1 else widths[0]
    return ceil(DECODE_FACTOR * height * width * (3 * wide + 2 * widths[0]) * dtype_bytes)


def weight_bytes(
    architecture: Architecture, dtype_bytes: int, vae_dtype_bytes: int, *, text_aside: bool = False
) -> int:
    """A model's weights on its device."""
    sizes = {
        part: sum(prod(shape) for shape in architecture.tensor_shapes(part).values())
        for part in architecture.parts()
        if not (text_aside and part.startswith("text_encoder"))
    }
    return sum(count * (vae_dtype_bytes if part == "vae" else dtype_bytes) for part, count in sizes.items())


def quantized_bytes(architecture: Architecture) -> int:
    """The transformers' matrices in 8 bits, with a scale per row; without the prompts' keys and values."""
    matrices = [
        shape
        for name, shape in architecture.tensor_shapes("unet").items()
        if "transformer_blocks" in name and len(shape) == 2 and not name.endswith(_PROMPT_WEIGHTS)
    ]
    return sum(rows * columns + 4 * rows for rows, columns in matrices)


def fp8_convolution_bytes(architecture: Architecture) -> int:
    """The 3×3 convolutions of the UNet's residual blocks in 8 bits, with a scale per output channel."""
    weights = [
        shape
        for name, shape in architecture.tensor_shapes("unet").items()
        if ".resnets." in name and tuple(shape[2:]) == (3, 3)
    ]
    return sum(prod(shape) + 4 * shape[0] for shape in weights)


def prompt_bytes(architecture: Architecture, dtype_bytes: int) -> int:
    """Keys and values of one row's prompt in every layer; of one window of tokens."""
    tokens = int(architecture.text_encoders[0]["max_position_embeddings"])
    shapes = architecture.tensor_shapes("unet").items()
    return tokens * dtype_bytes * sum(shape[0] for name, shape in shapes if name.endswith(_PROMPT_WEIGHTS))


def winograd_bytes(architecture: Architecture) -> int:
    """The weights of 3×3 convolutions at Winograd's points, in single precision."""
    decoder = {n: s for n, s in architecture.tensor_shapes("vae").items() if n.startswith("decoder.")}
    return _at_points(architecture.tensor_shapes("unet")) + _at_points(decoder)


def onednn_conv_bytes(architecture: Architecture) -> int:
    """The same of the UNet alone, as made and as oneDNN reads them; all its convolutions as oneDNN does."""
    shapes = architecture.tensor_shapes("unet")
    kernels = sum(4 * prod(shape) for shape in shapes.values() if tuple(shape[2:]) == (3, 3))
    return 2 * _at_points(shapes) + kernels


def _at_points(shapes: Mapping[str, Sequence[int]]) -> int:
    found = 0
    for name, shape in shapes.items():
        if tuple(shape[2:]) == (3, 3) and "downsamplers" not in name:
            taken = 4 * REACH**2 * shape[0] * shape[1]
            found += taken if taken <= MAX_BYTES else 0
    return found


def decoder_bytes(architecture: Architecture, dtype_bytes: int) -> int:
    """Our own decoder's weights, which are a copy."""
    shapes = architecture.tensor_shapes("vae").items()
    ours = (shape for name, shape in shapes if name.startswith(("decoder.", "post_quant_conv.")))
    return dtype_bytes * sum(prod(shape) for shape in ours)


def plan_memory(
    architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand, extras: Extras | None = None
) -> MemoryPlan:
    """Choose batch size and tiling; refuse a request that cannot fit, and name the largest that would."""
    extras = extras or Extras()
    budget = replace(budget, extras=extras)
    if extras.decoder_dtype_bytes and not demand.encodes:
        budget = replace(budget, vae_dtype_bytes=extras.decoder_dtype_bytes)
    usable, costs = budget.usable_bytes, _costs(architecture, budget, demand)
    most = costs.most(usable)
    if most < 1:
        raise DoesNotFitError(_too_large(architecture, budget, demand, costs.peak(1)))
    requested = min(demand.count, demand.batch_size or demand.most_at_once)
    if demand.batch_size is not None and requested > most:
        raise DoesNotFitError(
            f"batch size {requested} at {demand.width}×{demand.height} needs about "
            f"{_size(costs.peak(requested))}, "
            f"{_size(usable)} of {budget.where} can be used; the largest batch that fits is {most}"
        )
    batch_size = min(requested, most)
    return MemoryPlan(batch_size, costs.tiled, extras.resident_bytes + costs.peak(batch_size))


def most_pixels(architecture: Architecture, budget: MemoryBudget) -> int:
    """Upper limit of an image's pixels: for a larger one the UNet alone exceeds the budget."""
    side = 64
    each = unet_bytes(architecture, 1, side, side, budget.dtype_bytes)
    return budget.usable_bytes * (side * architecture.vae_factor) ** 2 // each


def predicted_bytes(
    architecture: Architecture,
    budget: MemoryBudget,
    demand: MemoryDemand,
    extras: Extras,
    *,
    text_aside: bool = False,
) -> int:
    """Peak memory on the device: weights, activations and workspace."""
    weights = weight_bytes(architecture, budget.dtype_bytes, budget.vae_dtype_bytes, text_aside=text_aside)
    return weights + plan_memory(architecture, budget, demand, extras).peak_bytes + WORKSPACE_BYTES


def _costs(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand) -> _Costs:
    factor, rows = architecture.vae_factor, 2 if demand.guided else 1
    latent = (demand.height // factor, demand.width // factor)
    # A sampler's own latents are small beside activations, but there are several.
    extras = budget.extras
    evaluation = unet_bytes(architecture, rows, *latent, budget.dtype_bytes)
    whole = decode_bytes(architecture, demand.height, demand.width, budget.vae_dtype_bytes)
    costs = _Costs(
        evaluation=ceil(extras.activations * evaluation) + 40 * latent[0] * latent[1],
        kept=rows * demand.prompt_windows * extras.prompt_bytes,
        decode=ceil(extras.activations * whole),
        graphed=extras.graphed,
        tiled=False,
    )
    batch = min(demand.count, demand.batch_size or 1)
    if demand.tile_vae or (demand.tile_vae is None and costs.peak(batch) > budget.usable_bytes):
        return replace(costs, decode=_tiled_bytes(architecture, budget, demand), tiled=True)
    return costs


def _tiled_bytes(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand) -> int:
    tile = (min(TILE_PIXELS, demand.height), min(TILE_PIXELS, demand.width))
    canvas = CANVAS_BYTES * demand.height * demand.width
    decode = decode_bytes(architecture, *tile, budget.vae_dtype_bytes)
    return ceil(budget.extras.activations * decode) + canvas


def _too_large(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand, needed: int) -> str:
    need = f"{demand.width}×{demand.height} needs about {_size(needed)}"
    if demand.tile_vae is False:
        need += " without tiles"
    largest = _largest(architecture, budget, demand)
    advice = (
        f"the largest image of this aspect ratio that fits is {largest.width}×{largest.height}"
        if largest
        else "not even the smallest image of this aspect ratio fits: free some memory or use a smaller model"
    )
    return f"{need}, {_size(budget.usable_bytes)} of {budget.where} can be used; {advice}"


def _largest(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand) -> MemoryDemand | None:
    """The same demand, scaled down until it fits; the longer side shrinks in steps of 8 pixels."""
    longer = max(demand.width, demand.height)
    # One step below the smallest size means that nothing fits.
    low, high = MIN_SIDE // 8 - 1, longer // 8
    while low < high:
        middle = (low + high + 1) // 2
        scaled = _scaled(demand, middle * 8 / longer)
        fits = _costs(architecture, budget, scaled).peak(1) <= budget.usable_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return _scaled(demand, low * 8 / longer) if low * 8 >= MIN_SIDE else None


def _scaled(demand: MemoryDemand, scale: float) -> MemoryDemand:
    def scaled(side: int) -> int:
        return max(MIN_SIDE, round(side * scale / 8) * 8)

    return replace(demand, width=scaled(demand.width), height=scaled(demand.height))


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 / 10 else f"{count / 2**20:.0f} MiB"
