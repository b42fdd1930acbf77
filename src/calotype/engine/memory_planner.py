"""How much memory a request will take, before it takes it.

The estimate counts what the architecture says has to be alive at the worst moment of a UNet evaluation and of
a decode. The factors in front were fitted to peaks measured on one H200 (benchmarks/2026-11-15-baseline and
-memory) and err on the large side. Knows nothing of devices but their free bytes.
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
"""What convolution and attention libraries take for themselves."""
HEADROOM = 0.95
"""Share of free memory that is planned for; the allocator needs some room to cut from."""
MAX_AT_ONCE = 16
"""Pictures in a batch nobody chose the size of; more of them gain little and delay the first."""

_OF_PROMPTS = ("attn2.to_k.weight", "attn2.to_v.weight")
UNET_FACTOR = 1.7
DECODE_FACTOR = 1.25
UNJOINED_FACTOR = 1.2
"""Activations of our decoder on a CPU, where no kernel of ours joins its sums with what reads them.

Measured with the embedded model: 1.03 at 512², 1.12 at 768², 1.13 at 1024².
"""
WINOGRAD_FACTOR = 1.15
"""Activations beside those of libraries' own convolutions, for copies with edges and sums one by one.

Measured with the embedded model: 1.15 for an evaluation, 1.01 to 1.15 for our decoder at 256² to 1024².
"""
CANVAS_BYTES = 32
"""Per pixel of a picture put together from tiles: colours, weights and the tile's share of both, in fp32."""


@dataclass(frozen=True)
class Extras:
    """What passes take beside activations."""

    resident_bytes: int = 0
    """Made of weights at the first evaluation, and kept: in eight bits, at Winograd's points, a decoder's."""
    activations: float = 1.0
    """Times what an evaluation or a decode takes otherwise."""
    graphed: bool = False
    """CUDA graphs keep the UNet's activations to themselves, also while a picture is decoded."""
    decoder_dtype_bytes: int | None = None
    """Of our own decoder; an autoencoder may be in a wider precision."""
    prompt_bytes: int = 0
    """What is kept of a row's prompt until the picture is done: its keys and values in every layer.

    Of a prompt of one window.
    """


@dataclass(frozen=True)
class MemoryBudget:
    """What there is to plan with."""

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
    """What is asked, as far as memory goes."""

    width: int
    height: int
    count: int = 1
    guided: bool = True
    batch_size: int | None = None
    """Pictures at once; as many as fit if not said."""
    encodes: bool = False
    """Whether a picture is given, which the autoencoder itself encodes."""
    tile_vae: bool | None = None
    """Whether to encode and decode in tiles; when needed if not said."""
    most_at_once: int = MAX_AT_ONCE
    """Pictures at once where nobody says how many."""
    prompt_windows: int = 1
    """Windows of tokens that the longer of both prompts takes."""


@dataclass(frozen=True)
class _Costs:
    """What pictures that are made together take."""

    evaluation: int
    """Of one picture, while the UNet runs."""
    kept: int
    """Of one picture, from its first step until it is decoded."""
    decode: int
    """Of one picture; one is decoded at a time."""
    graphed: bool
    tiled: bool

    def peak(self, pictures: int) -> int:
        """One after the other; a graph keeps what it took, and its own copy of what it reads."""
        evaluation, kept = pictures * self.evaluation, pictures * self.kept
        if self.graphed:
            return evaluation + 2 * kept + self.decode
        return kept + max(evaluation, self.decode)

    def most(self, usable: int) -> int:
        """Pictures that fit."""
        low, high = 0, usable // self.evaluation + 1
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.peak(middle) <= usable else (low, middle)
        return low


@dataclass(frozen=True)
class MemoryPlan:
    """How a request will be run so that it fits."""

    batch_size: int
    tiled: bool
    peak_bytes: int


def unet_bytes(
    architecture: Architecture, rows: int, latent_height: int, latent_width: int, dtype_bytes: int
) -> int:
    """Activations at the worst moment of one evaluation over `rows` rows (two a picture with guidance)."""
    widths = architecture.unet["block_out_channels"]
    layers = architecture.unet["layers_per_block"]
    skips = sum((layers + 1) * width / 4**level for level, width in enumerate(widths))
    kinds = architecture.unet["down_block_types"]
    # The gated feed-forward layer makes eight times its width beside its input, residual and norm; a resnet
    # after a skip connection holds about six times.
    working = max(
        width * (11 if "CrossAttn" in kind else 6) / 4**level
        for level, (width, kind) in enumerate(zip(widths, kinds, strict=True))
    )
    return ceil(UNET_FACTOR * rows * latent_height * latent_width * (skips + working) * dtype_bytes)


def decode_bytes(architecture: Architecture, height: int, width: int, dtype_bytes: int) -> int:
    """Activations at the worst moment of decoding one picture; encoding takes less."""
    widths = architecture.vae["block_out_channels"]
    # The last but one level's channels arrive at full size: input, norm, activation and output live together.
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
    """The transformers' matrices in eight bits, with a scale for each row; keys and values of prompts not."""
    matrices = [
        shape
        for name, shape in architecture.tensor_shapes("unet").items()
        if "transformer_blocks" in name and len(shape) == 2 and not name.endswith(_OF_PROMPTS)
    ]
    return sum(rows * columns + 4 * rows for rows, columns in matrices)


def fp8_convolution_bytes(architecture: Architecture) -> int:
    """The 3×3 convolutions of the UNet's residual blocks in eight bits, with a scale for each channel out."""
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
    return tokens * dtype_bytes * sum(shape[0] for name, shape in shapes if name.endswith(_OF_PROMPTS))


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
    """Choose a batch size and whether to use tiles; refuse what cannot fit, naming the largest that would."""
    extras = extras or Extras()
    budget = replace(budget, extras=extras)
    if extras.decoder_dtype_bytes and not demand.encodes:
        budget = replace(budget, vae_dtype_bytes=extras.decoder_dtype_bytes)
    usable, costs = budget.usable_bytes, _costs(architecture, budget, demand)
    most = costs.most(usable)
    if most < 1:
        raise DoesNotFitError(_too_large(architecture, budget, demand, costs.peak(1)))
    asked = min(demand.count, demand.batch_size or demand.most_at_once)
    if demand.batch_size is not None and asked > most:
        raise DoesNotFitError(
            f"batch size {asked} at {demand.width}×{demand.height} needs about "
            f"{_size(costs.peak(asked))}, "
            f"{_size(usable)} of {budget.where} can be used; the largest batch that fits is {most}"
        )
    batch_size = min(asked, most)
    return MemoryPlan(batch_size, costs.tiled, extras.resident_bytes + costs.peak(batch_size))


def most_pixels(architecture: Architecture, budget: MemoryBudget) -> int:
    """Of one picture: for a larger one the UNet alone needs more, whatever else is given up."""
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
    """What a device will have given out at the worst moment: weights, activations and workspace."""
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
    wanted = min(demand.count, demand.batch_size or 1)
    if demand.tile_vae or (demand.tile_vae is None and costs.peak(wanted) > budget.usable_bytes):
        return replace(costs, decode=_tiled_bytes(architecture, budget, demand), tiled=True)
    return costs


def _tiled_bytes(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand) -> int:
    tile = (min(TILE_PIXELS, demand.height), min(TILE_PIXELS, demand.width))
    canvas = CANVAS_BYTES * demand.height * demand.width
    decode = decode_bytes(architecture, *tile, budget.vae_dtype_bytes)
    return ceil(budget.extras.activations * decode) + canvas


def _too_large(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand, needed: int) -> str:
    asked = f"{demand.width}×{demand.height} needs about {_size(needed)}"
    if demand.tile_vae is False:
        asked += " without tiles"
    largest = _largest(architecture, budget, demand)
    advice = (
        f"the largest picture of this shape that fits is {largest.width}×{largest.height}"
        if largest
        else "not even the smallest picture of this shape fits: free some memory or use a smaller model"
    )
    return f"{asked}, {_size(budget.usable_bytes)} of {budget.where} can be used; {advice}"


def _largest(architecture: Architecture, budget: MemoryBudget, demand: MemoryDemand) -> MemoryDemand | None:
    """The same picture, scaled down until it fits; the longer side is tried in steps of 8 pixels."""
    longer = max(demand.width, demand.height)
    # One step less than the smallest stands for "nothing fits".
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
