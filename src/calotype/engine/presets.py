"""Named lists of passes, and a model's network put together by one. Knows nothing of what a pass does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from weakref import finalize

from calotype.core.errors import NotFoundError, near_matches
from calotype.engine.compile.aot_package import read_package
from calotype.engine.compile.manager import Workshop
from calotype.engine.compile.region import Region, as_it_is
from calotype.engine.compile.subprocess_compiler import Elsewhere, at_once_beside
from calotype.engine.cuda_graphs import Graphs
from calotype.engine.memory_planner import MOST_AT_ONCE, Extras, prompt_bytes
from calotype.engine.modules import onednn
from calotype.engine.modules.cached_unet import OwnNetwork
from calotype.engine.modules.deepcache import SETTLED_AFTER, StepCached
from calotype.engine.modules.unet import Unet
from calotype.engine.modules.vae_decoder import OwnDecoders
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.aot_compiled import COMPILED_AHEAD
from calotype.engine.passes.attention import CUDNN_ATTENTION, FLASH_ATTENTION
from calotype.engine.passes.cached_cross_attention_kv import PROMPTS_ONCE
from calotype.engine.passes.cached_time_embeddings import TIMES_ONCE
from calotype.engine.passes.channels_last import CHANNELS_LAST
from calotype.engine.passes.compile_blocks import COMPILE_BLOCKS
from calotype.engine.passes.compile_whole import COMPILE_WHOLE
from calotype.engine.passes.cuda_graph import CUDA_GRAPH
from calotype.engine.passes.deepcache import STEP_CACHE
from calotype.engine.passes.fp8_conv import FP8_CONVOLUTIONS
from calotype.engine.passes.fused_geglu import FUSED_GEGLU
from calotype.engine.passes.fused_norms import FUSED_NORMS
from calotype.engine.passes.fused_qkv import JOINED_QKV
from calotype.engine.passes.guidance_interval import GUIDANCE_INTERVAL
from calotype.engine.passes.hopper_attention import OWN_ATTENTION
from calotype.engine.passes.int8_static import INT8_STATIC
from calotype.engine.passes.large_batch import LARGE_BATCHES
from calotype.engine.passes.native_unet import OWN_FORWARD
from calotype.engine.passes.native_vae_decoder import OWN_DECODER
from calotype.engine.passes.onednn_conv import WIDE_CONVOLUTIONS
from calotype.engine.passes.onednn_linear import WIDE_PRODUCTS
from calotype.engine.passes.quantize_8bit import FP8, INT8
from calotype.engine.passes.shared_cfg_trunk import SHARED_GUIDANCE
from calotype.engine.passes.text_encoder_cuda_graph import TEXT_GRAPH
from calotype.engine.passes.text_encoder_offload import TEXT_ASIDE
from calotype.engine.passes.winograd_conv import WINOGRAD
from calotype.engine.text_encoder import Encoding
from calotype.engine.unet_runner import Network, PlainNetwork
from calotype.engine.vae import Decode, plain_decode
from calotype.models.model import Model

_EVERYWHERE = (
    OWN_FORWARD,
    CHANNELS_LAST,
    JOINED_QKV,
    PROMPTS_ONCE,
    TIMES_ONCE,
    FUSED_NORMS,
    FUSED_GEGLU,
    SHARED_GUIDANCE,
    OWN_DECODER,
)
_ARITHMETIC = (WINOGRAD, WIDE_PRODUCTS)
"""One or the other, by what the CPU is."""
_AT_ONCE = (OWN_ATTENTION, CUDA_GRAPH, TEXT_GRAPH)
"""On a GPU, where nothing is compiled for it."""

PRESETS: dict[str, tuple[Pass, ...]] = {
    "baseline": (),
    "fast": (*_EVERYWHERE, *_ARITHMETIC, WIDE_CONVOLUTIONS, COMPILED_AHEAD, *_AT_ONCE),
    "max-throughput": (
        *_EVERYWHERE,
        *_ARITHMETIC,
        WIDE_CONVOLUTIONS,
        COMPILE_WHOLE,
        LARGE_BATCHES,
        *_AT_ONCE,
    ),
    "int8": (*_EVERYWHERE, *_ARITHMETIC, INT8, *_AT_ONCE),
    "int8-static": (*_EVERYWHERE, *_ARITHMETIC, INT8_STATIC, *_AT_ONCE),
    "fp8": (*_EVERYWHERE, WIDE_PRODUCTS, FP8, FP8_CONVOLUTIONS, *_AT_ONCE),
    "low-memory": (
        OWN_FORWARD,
        CHANNELS_LAST,
        PROMPTS_ONCE,
        FUSED_NORMS,
        FUSED_GEGLU,
        OWN_DECODER,
        TEXT_ASIDE,
    ),
    "cached": (*_EVERYWHERE, *_ARITHMETIC, STEP_CACHE, *_AT_ONCE),
}
CUSTOM = "passes:"
"""What a list of passes begins with where a preset is named: `passes:own_forward+cuda_graph`."""
PASSES = {one.name: one for passes in PRESETS.values() for one in passes}
PASSES |= {one.name: one for one in (COMPILE_BLOCKS, GUIDANCE_INTERVAL, CUDNN_ATTENTION, FLASH_ATTENTION)}
ON_A_GPU = frozenset(
    {CUDA_GRAPH.name, LARGE_BATCHES.name, OWN_ATTENTION.name, TEXT_ASIDE.name, TEXT_GRAPH.name}
)
"""Passes that a preset goes without on a CPU, where there is nothing for them to do."""
WIDE = frozenset({WIDE_PRODUCTS.name, WIDE_CONVOLUTIONS.name})
"""Passes for processors where oneDNN is twice as fast; others have `winograd` in their place."""
ON_A_CPU = frozenset({COMPILE_WHOLE.name, COMPILED_AHEAD.name, WINOGRAD.name, *WIDE})
"""Those it goes without on a GPU."""


class Runs(Protocol):
    """How the regions of a network are run that a pass wants compiled: a `Workshop`."""

    changes: int

    def run(self, region: Region) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Networks:
    """What an engine runs, and how."""

    unet: Network
    decode: Decode
    runs: Runs | None = None
    """What runs those regions of the UNet that are to be compiled."""
    guided_between: tuple[float, float] = (0.0, 1.0)
    """Share of the timesteps at which the negative prompt is asked too."""
    shared_latents: bool = False
    """Whether the UNet may be given a latent with two prompts once."""
    extras: Extras = field(default_factory=Extras)
    """What they take beside activations."""
    most_at_once: int = MOST_AT_ONCE
    """Pictures in a batch nobody chose the size of."""
    text_aside: bool = False
    """Text encoders wait in main memory."""
    run_text: Callable[[Encoding], Encoding] = lambda encoding: encoding
    """How a text encoder is run."""
    graphs: Graphs = field(default_factory=Graphs)
    """What is recorded of them."""
    settled_after: int = 2
    """Evaluations of one shape until nothing is left to record: a graph is recorded at its second."""


def networks_of(
    model: Model, preset: str, *, kept: Mapping[str, Path] | None = None, runs: Runs | None = None
) -> Networks:
    """The model's networks with a preset's passes applied in order; refused whole if one cannot be.

    `kept` are compiled regions by their signatures; `runs`, if given, decides about regions instead.
    """
    return put_together(model, passes_of(model, preset), kept=kept, runs=runs)


def passes_of(model: Model, preset: str) -> tuple[Pass, ...]:
    """A preset's passes as far as they concern the model's device, which has all they need."""
    chosen = _concerning(preset, model.device.type)
    for one in chosen:
        lacking = one.missing(model)
        if lacking:
            raise NotFoundError(f"preset {preset!r} needs the pass {one.name!r}, and {lacking}")
    return chosen


def reason_against(model: Model, preset: str) -> str | None:
    """Why a model cannot be run with a preset, if it cannot."""
    try:
        passes_of(model, preset)
    except NotFoundError as error:
        return str(error)
    return None


def pass_names(preset: str, device_type: str) -> tuple[str, ...]:
    """The names of a preset's passes as far as they concern a kind of device."""
    return tuple(one.name for one in _concerning(preset, device_type))


def _concerning(preset: str, device_type: str) -> tuple[Pass, ...]:
    if preset.startswith(CUSTOM):
        # Somebody named them: what cannot be done here is refused, not left out.
        return all_passes(preset)
    return tuple(one for one in all_passes(preset) if one.name not in _elsewhere(device_type))


def _elsewhere(device_type: str) -> frozenset[str]:
    """Passes that do nothing for such a device, or for the processor of this machine."""
    if device_type == "cuda":
        return ON_A_CPU
    return ON_A_GPU | ({WINOGRAD.name} if onednn.worth_it() else WIDE)


def all_passes(preset: str) -> tuple[Pass, ...]:
    """A preset's passes, or those of a list of them, on whatever device."""
    if preset.startswith(CUSTOM):
        return _listed([name for name in preset.removeprefix(CUSTOM).split("+") if name])
    if preset not in PRESETS:
        raise NotFoundError(f"no preset {preset[:60]!r}; {near_matches(preset[:60], PRESETS)}")
    return PRESETS[preset]


def _listed(names: list[str]) -> tuple[Pass, ...]:
    for place, name in enumerate(names):
        if name not in PASSES:
            raise NotFoundError(f"no pass {name[:60]!r}; {near_matches(name[:60], PASSES)}")
        lacking = [needed for needed in PASSES[name].after if needed not in names[:place]]
        if lacking:
            raise NotFoundError(f"the pass {name!r} builds on {lacking[0]!r}; name that before it")
        if name in names[:place]:
            raise NotFoundError(f"the pass {name!r} is named twice; name it once")
        for other in names[:place]:
            if other in PASSES[name].excludes or name in PASSES[other].excludes:
                raise NotFoundError(f"the passes {other!r} and {name!r} do not go together; leave one out")
    return tuple(PASSES[name] for name in names)


def passes_named(names: Sequence[str]) -> tuple[Pass, ...]:
    """Passes by their names."""
    return tuple(PASSES[name] for name in names)


def put_together(
    model: Model,
    passes: tuple[Pass, ...],
    *,
    kept: Mapping[str, Path] | None = None,
    runs: Runs | None = None,
) -> Networks:
    """The networks that passes make of a model."""
    assembly = Assembly(model)
    for one in passes:
        one.apply(assembly)
    if runs is None:
        at_once = at_once_beside(model.device) if assembly.compiled_behind else 1
        names = [one.name for one in passes]
        behind = Elsewhere(model, names, at_once) if assembly.compiled_behind else None
        runs = Workshop(kept or {}, read_package, behind, hand_in=assembly.hand_in, at_once=at_once)
        assembly.on_change.append(runs.refresh)
        if behind is not None:
            finalize(runs, behind.end)
    graphs = Graphs()
    decode: Decode = plain_decode
    if assembly.own_decoder:
        decode = OwnDecoders(assembly.operations, model.dtype, assembly.prepare, otherwise=plain_decode)
    return Networks(
        _unet(assembly, runs, graphs),
        decode,
        runs,
        guided_between=assembly.guided_between,
        shared_latents=assembly.shared_latents,
        extras=Extras(
            resident_bytes=assembly.resident_bytes,
            activations=assembly.activations,
            graphed=assembly.graphed,
            decoder_dtype_bytes=model.dtype.itemsize if assembly.own_decoder else None,
            prompt_bytes=prompt_bytes(model.architecture, model.dtype.itemsize)
            if assembly.prompts_once
            else 0,
        ),
        most_at_once=assembly.most_at_once,
        text_aside=assembly.text_aside,
        run_text=graphs if assembly.text_graphed else _as_it_is,
        graphs=graphs,
        settled_after=SETTLED_AFTER if assembly.step_cached else Networks.settled_after,
    )


def _unet(assembly: Assembly, runs: Runs, graphs: Graphs) -> Network:
    model = assembly.model
    if not assembly.own:
        return PlainNetwork(model)
    for each in assembly.prepare:
        each(model.unet)
    unet = Unet(
        model.unet,
        assembly.operations,
        channels_last=assembly.channels_last,
        joined_qkv=assembly.joined_qkv,
        wrap=runs.run if assembly.compiled == "blocks" else as_it_is,
    )
    run = partial(graphs, changes=lambda: runs.changes) if assembly.graphed else _as_it_is
    own = OwnNetwork(
        unet,
        run(runs.run(unet.region()) if assembly.compiled == "whole" else unet),
        prompts_once=assembly.prompts_once,
        times_once=assembly.times_once,
        on_change=assembly.on_change,
    )
    if not assembly.step_cached:
        return own
    return StepCached(own, run(unet.with_deep), run(unet.shallow))


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
