"""Named lists of passes, and a model's network put together by one. Knows nothing of what a pass does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from weakref import finalize

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.engine.compile.aot_package import read_package
from calotype.engine.compile.manager import CompileManager
from calotype.engine.compile.region import Region, unwrapped
from calotype.engine.compile.subprocess_compiler import SubprocessCompiler, max_parallel_compiles
from calotype.engine.cuda_graphs import CudaGraphPool
from calotype.engine.memory_planner import MAX_AT_ONCE, Extras, prompt_bytes
from calotype.engine.modules import onednn
from calotype.engine.modules.cached_unet import CachedUNet
from calotype.engine.modules.deepcache import SETTLED_AFTER, DeepCacheUNet
from calotype.engine.modules.unet import Unet
from calotype.engine.modules.vae_decoder import NativeDecoders
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.aot_compiled import AOT_COMPILED
from calotype.engine.passes.attention import CUDNN_ATTENTION, FLASH_ATTENTION
from calotype.engine.passes.cached_cross_attention_kv import CACHED_CROSS_ATTENTION_KV
from calotype.engine.passes.cached_time_embeddings import CACHED_TIME_EMBEDDINGS
from calotype.engine.passes.channels_last import CHANNELS_LAST
from calotype.engine.passes.compile_blocks import COMPILE_BLOCKS
from calotype.engine.passes.compile_whole import COMPILE_WHOLE
from calotype.engine.passes.cuda_graph import CUDA_GRAPH
from calotype.engine.passes.deepcache import DEEPCACHE
from calotype.engine.passes.fp8_conv import FP8_CONV
from calotype.engine.passes.fused_geglu import FUSED_GEGLU
from calotype.engine.passes.fused_norms import FUSED_NORMS
from calotype.engine.passes.fused_qkv import FUSED_QKV
from calotype.engine.passes.guidance_interval import GUIDANCE_INTERVAL
from calotype.engine.passes.hopper_attention import HOPPER_ATTENTION
from calotype.engine.passes.int8_static import INT8_STATIC
from calotype.engine.passes.large_batch import LARGE_BATCH
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.engine.passes.native_vae_decoder import NATIVE_VAE_DECODER
from calotype.engine.passes.onednn_conv import ONEDNN_CONV
from calotype.engine.passes.onednn_linear import ONEDNN_LINEAR
from calotype.engine.passes.quantize_8bit import FP8, INT8
from calotype.engine.passes.shared_cfg_trunk import SHARED_CFG_TRUNK
from calotype.engine.passes.text_encoder_cuda_graph import TEXT_ENCODER_CUDA_GRAPH
from calotype.engine.passes.text_encoder_offload import TEXT_ENCODER_OFFLOAD
from calotype.engine.passes.winograd_conv import WINOGRAD_CONV
from calotype.engine.text_encoder import Encoding
from calotype.engine.unet_runner import DiffusersUNet, UNetRunner
from calotype.engine.vae import Decode, decode_with_diffusers
from calotype.models.model import Model

COMMON_PASSES = (
    NATIVE_UNET,
    CHANNELS_LAST,
    FUSED_QKV,
    CACHED_CROSS_ATTENTION_KV,
    CACHED_TIME_EMBEDDINGS,
    FUSED_NORMS,
    FUSED_GEGLU,
    SHARED_CFG_TRUNK,
    NATIVE_VAE_DECODER,
)
_ARITHMETIC = (WINOGRAD_CONV, ONEDNN_LINEAR)
"""One or the other, by what the CPU is."""
GPU_EAGER_PASSES = (HOPPER_ATTENTION, CUDA_GRAPH, TEXT_ENCODER_CUDA_GRAPH)
"""On a GPU, where nothing is compiled for it."""

PRESETS: dict[str, tuple[Pass, ...]] = {
    "baseline": (),
    "fast": (*COMMON_PASSES, *_ARITHMETIC, ONEDNN_CONV, AOT_COMPILED, *GPU_EAGER_PASSES),
    "max-throughput": (
        *COMMON_PASSES,
        *_ARITHMETIC,
        ONEDNN_CONV,
        COMPILE_WHOLE,
        LARGE_BATCH,
        *GPU_EAGER_PASSES,
    ),
    "int8": (*COMMON_PASSES, *_ARITHMETIC, INT8, *GPU_EAGER_PASSES),
    "int8-static": (*COMMON_PASSES, *_ARITHMETIC, INT8_STATIC, *GPU_EAGER_PASSES),
    "fp8": (*COMMON_PASSES, ONEDNN_LINEAR, FP8, FP8_CONV, *GPU_EAGER_PASSES),
    "low-memory": (
        NATIVE_UNET,
        CHANNELS_LAST,
        CACHED_CROSS_ATTENTION_KV,
        FUSED_NORMS,
        FUSED_GEGLU,
        NATIVE_VAE_DECODER,
        TEXT_ENCODER_OFFLOAD,
    ),
    "cached": (*COMMON_PASSES, *_ARITHMETIC, DEEPCACHE, *GPU_EAGER_PASSES),
}
CUSTOM_PREFIX = "passes:"
"""What a list of passes begins with where a preset is named: `passes:own_forward+cuda_graph`."""
PASSES = {one.name: one for passes in PRESETS.values() for one in passes}
PASSES |= {one.name: one for one in (COMPILE_BLOCKS, GUIDANCE_INTERVAL, CUDNN_ATTENTION, FLASH_ATTENTION)}
GPU_ONLY = frozenset(
    {
        CUDA_GRAPH.name,
        LARGE_BATCH.name,
        HOPPER_ATTENTION.name,
        TEXT_ENCODER_OFFLOAD.name,
        TEXT_ENCODER_CUDA_GRAPH.name,
    }
)
"""Passes that a preset goes without on a CPU, where there is nothing for them to do."""
ONEDNN_PASSES = frozenset({ONEDNN_LINEAR.name, ONEDNN_CONV.name})
"""Passes for processors where oneDNN is twice as fast; others have `winograd` in their place."""
CPU_ONLY = frozenset({COMPILE_WHOLE.name, AOT_COMPILED.name, WINOGRAD_CONV.name, *ONEDNN_PASSES})
"""Those it goes without on a GPU."""


class RegionRunner(Protocol):
    """How the regions of a network are run that a pass wants compiled: a `CompileManager`."""

    changes: int

    def run(self, region: Region) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Networks:
    """What an engine runs, and how."""

    unet: UNetRunner
    decode: Decode
    runs: RegionRunner | None = None
    """What runs those regions of the UNet that are to be compiled."""
    guided_between: tuple[float, float] = (0.0, 1.0)
    """Share of the timesteps at which the negative prompt is asked too."""
    shared_latents: bool = False
    """Whether the UNet may be given a latent with two prompts once."""
    extras: Extras = field(default_factory=Extras)
    """What they take beside activations."""
    most_at_once: int = MAX_AT_ONCE
    """Pictures in a batch nobody chose the size of."""
    text_aside: bool = False
    """Text encoders wait in main memory."""
    run_text: Callable[[Encoding], Encoding] = lambda encoding: encoding
    """How a text encoder is run."""
    graphs: CudaGraphPool = field(default_factory=CudaGraphPool)
    """What is recorded of them."""
    settled_after: int = 2
    """Evaluations of one shape until nothing is left to record: a graph is recorded at its second."""


def build_preset(
    model: Model, preset: str, *, kept: Mapping[str, Path] | None = None, runs: RegionRunner | None = None
) -> Networks:
    """The model's networks with a preset's passes applied in order; refused whole if one cannot be.

    `kept` are compiled regions by their signatures; `runs`, if given, decides about regions instead.
    """
    return build_networks(model, resolve_passes(model, preset), kept=kept, runs=runs)


def resolve_passes(model: Model, preset: str) -> tuple[Pass, ...]:
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
        resolve_passes(model, preset)
    except NotFoundError as error:
        return str(error)
    return None


def pass_names(preset: str, device_type: str) -> tuple[str, ...]:
    """The names of a preset's passes as far as they concern a kind of device."""
    return tuple(one.name for one in _concerning(preset, device_type))


def _concerning(preset: str, device_type: str) -> tuple[Pass, ...]:
    if preset.startswith(CUSTOM_PREFIX):
        # Somebody named them: what cannot be done here is refused, not left out.
        return all_passes(preset)
    return tuple(one for one in all_passes(preset) if one.name not in _elsewhere(device_type))


def _elsewhere(device_type: str) -> frozenset[str]:
    """Passes that do nothing for such a device, or for the processor of this machine."""
    if device_type == "cuda":
        return CPU_ONLY
    return GPU_ONLY | ({WINOGRAD_CONV.name} if onednn.is_faster_here() else ONEDNN_PASSES)


def all_passes(preset: str) -> tuple[Pass, ...]:
    """A preset's passes, or those of a list of them, on whatever device."""
    if preset.startswith(CUSTOM_PREFIX):
        return _listed([name for name in preset.removeprefix(CUSTOM_PREFIX).split("+") if name])
    if preset not in PRESETS:
        raise NotFoundError(f"no preset {preset[:60]!r}; {did_you_mean(preset[:60], PRESETS)}")
    return PRESETS[preset]


def _listed(names: list[str]) -> tuple[Pass, ...]:
    for place, name in enumerate(names):
        if name not in PASSES:
            raise NotFoundError(f"no pass {name[:60]!r}; {did_you_mean(name[:60], PASSES)}")
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


def build_networks(
    model: Model,
    passes: tuple[Pass, ...],
    *,
    kept: Mapping[str, Path] | None = None,
    runs: RegionRunner | None = None,
) -> Networks:
    """The networks that passes make of a model."""
    assembly = NetworkBuilder(model)
    for one in passes:
        one.apply(assembly)
    if runs is None:
        at_once = max_parallel_compiles(model.device) if assembly.compiled_behind else 1
        names = [one.name for one in passes]
        behind = SubprocessCompiler(model, names, at_once) if assembly.compiled_behind else None
        runs = CompileManager(kept or {}, read_package, behind, hand_in=assembly.hand_in, at_once=at_once)
        assembly.on_change.append(runs.refresh)
        if behind is not None:
            finalize(runs, behind.end)
    graphs = CudaGraphPool()
    decode: Decode = decode_with_diffusers
    if assembly.own_decoder:
        decode = NativeDecoders(
            assembly.operations, model.dtype, assembly.prepare, otherwise=decode_with_diffusers
        )
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


def _unet(assembly: NetworkBuilder, runs: RegionRunner, graphs: CudaGraphPool) -> UNetRunner:
    model = assembly.model
    if not assembly.native_unet:
        return DiffusersUNet(model)
    for each in assembly.prepare:
        each(model.unet)
    unet = Unet(
        model.unet,
        assembly.operations,
        channels_last=assembly.channels_last,
        joined_qkv=assembly.joined_qkv,
        wrap=runs.run if assembly.compiled == "blocks" else unwrapped,
    )
    run = partial(graphs, changes=lambda: runs.changes) if assembly.graphed else _as_it_is
    own = CachedUNet(
        unet,
        run(runs.run(unet.region()) if assembly.compiled == "whole" else unet),
        prompts_once=assembly.prompts_once,
        times_once=assembly.times_once,
        on_change=assembly.on_change,
    )
    if not assembly.step_cached:
        return own
    return DeepCacheUNet(own, run(unet.with_deep), run(unet.shallow))


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
