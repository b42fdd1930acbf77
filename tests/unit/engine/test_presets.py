"""Presets are lists of passes, applied in order or refused; `fast` makes the picture of the baseline."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

from calotype.core.errors import NotFoundError
from calotype.engine.engine import Engine
from calotype.engine.modules import onednn, ops
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.attention import CUDNN_ATTENTION, FLASH_ATTENTION
from calotype.engine.passes.hopper_attention import HOPPER_ATTENTION
from calotype.engine.passes.large_batch import LARGE_BATCH
from calotype.engine.presets import PASSES, PRESETS, build_networks, build_preset, pass_names
from calotype.engine.quantization.calibrate import calibrate
from calotype.engine.unet_runner import DiffusersUNet
from calotype.models.model import Model
from calotype.spec.generate_request import GenerateRequest
from tests.engines import begun, difference, latents_of, relative, small_engine

SIZE: dict[str, Any] = {"width": 32, "height": 48, "steps": 3}
LONG = "a very long description of a red apple " * 5


def noted(name: str, applied: list[str], lacks: str | None = None) -> Pass:
    """A pass that only notes that it was applied."""

    def missing(_: Model) -> str | None:
        return lacks

    def apply(assembly: NetworkBuilder) -> None:
        applied.append(f"{name} on {assembly.model.architecture.name}")

    return Pass(name, "exact", missing, apply)


def test_passes_are_applied_in_order(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[str] = []
    monkeypatch.setitem(PRESETS, "two", (noted("first", applied), noted("second", applied)))
    assert isinstance(build_preset(engine.model, "two").unet, DiffusersUNet)
    assert applied == ["first on shrunk-emoji", "second on shrunk-emoji"]


def test_a_pass_that_cannot_be_applied_says_what_it_lacks(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[str] = []
    passes = (noted("first", applied), noted("odd", applied, lacks="this GPU is too small"))
    monkeypatch.setitem(PRESETS, "odd", passes)
    with pytest.raises(NotFoundError, match="preset 'odd' needs the pass 'odd', and this GPU is too small"):
        build_preset(engine.model, "odd")
    assert applied == []


def test_an_unknown_preset_is_refused_with_the_nearest(engine: Engine) -> None:
    with pytest.raises(NotFoundError, match=r"no preset 'fats'; .*fast"):
        build_preset(engine.model, "fats")


def test_passes_that_somebody_named_are_not_left_out(engine: Engine) -> None:
    with pytest.raises(NotFoundError, match="'cuda_graph', and CUDA graphs need a GPU"):
        build_preset(engine.model, "passes:own_forward+cuda_graph")
    assert pass_names("passes:own_forward+channels_last+winograd", "cuda")[-1] == "winograd"
    assert "winograd" not in pass_names("fast", "cuda")


@pytest.mark.parametrize(
    ("passes", "said"),
    [
        ("own_forward+int8+fp8", "passes 'int8' and 'fp8' do not go together; leave one out"),
        ("own_forward+compile_whole+int8", "'compile_whole' and 'int8' do not go together"),
        ("own_forward+fp8+compile_blocks", "'fp8' and 'compile_blocks' do not go together"),
        ("own_forward+step_cache+compile_whole", "'step_cache' and 'compile_whole' do not go together"),
        ("text_aside+text_graph", "'text_aside' and 'text_graph' do not go together"),
        ("own_forward+int8_static", "'int8_static' builds on 'fused_norms'; name that before it"),
        ("own_forward+fused_norms+fused_norms", "'fused_norms' is named twice"),
    ],
)
def test_passes_that_do_not_go_together_are_refused(engine: Engine, passes: str, said: str) -> None:
    with pytest.raises(NotFoundError, match=said):
        build_preset(engine.model, f"passes:{passes}")


REPLACING = (
    "fused_norms",
    "fused_geglu",
    "winograd",
    "wide_products",
    "wide_convolutions",
    "int8",
    "fp8",
    "int8_static",
    "fp8_convolutions",
)
"""Passes that put operations of their own in the place of others'."""


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    model = small_engine().model
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CALOTYPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        calibrate(model, prompts=("a red apple",), steps=2, size=32)
        yield model


def together(one: str, other: str) -> bool:
    """Whether the second may follow the first."""
    return other not in PASSES[one].excludes + PASSES[one].after and one not in PASSES[other].excludes


PAIRS = list(permutations(REPLACING, 2))


def named(one: str, other: str) -> str:
    needed = [each for each in PASSES[one].after + PASSES[other].after if each not in (one, other)]
    return "passes:" + "+".join(dict.fromkeys(["own_forward", "channels_last", *needed, one, other]))


@pytest.mark.parametrize(("one", "other"), [pair for pair in PAIRS if together(*pair)])
def test_any_two_passes_make_the_picture(one: str, other: str, calibrated: Model) -> None:
    """In whichever order they are named."""
    asked: dict[str, Any] = {**SIZE, "prompt": "an apple", "cfg": 1.0}
    plain = latents_of(Engine(calibrated), **asked)
    both = Engine(calibrated, networks=build_preset(calibrated, named(one, other)))
    # Measured: at most 0.07, with fp8 convolutions.
    assert relative(latents_of(both, **asked), plain) < 0.15


@pytest.mark.parametrize(("one", "other"), [pair for pair in PAIRS if not together(*pair)])
def test_or_they_are_refused(one: str, other: str, calibrated: Model) -> None:
    with pytest.raises(NotFoundError, match=r"do not go together|builds on"):
        build_preset(calibrated, named(one, other))


def test_the_baseline_is_no_pass_at_all() -> None:
    assert PRESETS["baseline"] == ()


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_compiles_on_a_gpu(preset: str) -> None:
    """Our kernels are what was measured there; compiled blocks are for lists of one's own."""
    compiling = {"compile_blocks", "compile_whole", "compiled_ahead"}
    assert not compiling & set(pass_names(preset, "cuda"))


def test_max_throughput_is_fast_in_larger_batches() -> None:
    assert set(pass_names("max-throughput", "cuda")) == {*pass_names("fast", "cuda"), "large_batches"}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_passes_stand_behind_those_they_build_on(
    preset: str, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "is_faster_here", lambda: wide)
    names = [one.name for one in PRESETS[preset]]
    assert len(set(names)) == len(names)
    for place, one in enumerate(PRESETS[preset]):
        assert set(one.after) <= set(names[:place])
    for device in ("cpu", "cuda"):
        used = pass_names(preset, device)
        assert not any(set(PASSES[name].excludes) & set(used) for name in used)


def test_a_preset_has_the_arithmetic_that_suits_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def arithmetic(preset: str, device: str = "cpu") -> list[str]:
        names = pass_names(preset, device)
        return [name for name in names if name in {"winograd", "wide_products", "wide_convolutions"}]

    monkeypatch.setattr(onednn, "is_faster_here", lambda: False)
    assert arithmetic("fast") == arithmetic("max-throughput") == arithmetic("int8") == ["winograd"]
    assert arithmetic("fp8") == arithmetic("low-memory") == []
    monkeypatch.setattr(onednn, "is_faster_here", lambda: True)
    assert arithmetic("fast") == arithmetic("max-throughput") == ["wide_products", "wide_convolutions"]
    assert arithmetic("int8") == arithmetic("fp8") == ["wide_products"]
    assert arithmetic("low-memory") == arithmetic("fast", "cuda") == []


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", ["emoji", "sdxl"])
def test_fast_makes_the_picture_of_the_baseline(
    name: str, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "is_faster_here", lambda: wide)
    plain, fast = small_engine(name), small_engine(name, preset="fast")
    asked: dict[str, Any] = {**SIZE, "seed": 3, "count": 2, "negative_prompt": "a pear", "cfg": 5.0}
    wanted = plain.generate("a red apple", **asked)
    found = fast.generate("a red apple", **asked)
    assert max(difference(*pair) for pair in zip(found.images, wanted.images, strict=True)) <= 1
    assert [record.preset for record in found.records] == ["fast", "fast"]


@pytest.mark.parametrize("name", ["emoji", "sdxl"])
def test_fast_keeps_company_apart(name: str) -> None:
    """Rows with prompts of different length, guidance and noise level in one evaluation."""
    fast = small_engine(name, preset="fast")
    knobs: list[dict[str, Any]] = [
        {**SIZE, "prompt": "a red apple", "seed": 1},
        {**SIZE, "prompt": LONG, "seed": 2, "cfg": 3.0, "steps": 4},
        {**SIZE, "prompt": "a pear", "seed": 3, "cfg": 1.0},
    ]
    alone = [latents_of(fast, **each) for each in knobs]
    runs = [begun(fast, each)[0] for each in knobs]
    while under_way := [run for run in runs if not run.done]:
        fast.step(under_way)
    for run, wanted in zip(runs, alone, strict=True):
        assert run.latents is not None
        assert relative(run.latents, wanted) < 1e-4


def test_fast_follows_a_lora_there_and_back(tmp_path: Path) -> None:
    layers = (
        "down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k",
        "mid_block.resnets.0.time_emb_proj",
    )
    (tmp_path / "loras").mkdir()
    plain, fast = (small_engine("emoji", preset=p, models_folder=tmp_path) for p in ("baseline", "fast"))
    tensors = {}
    for layer in layers:
        out, inputs = plain.model.unet.get_submodule(layer).weight.shape
        generator = torch.Generator().manual_seed(1)
        tensors[f"unet.{layer}.lora_A.weight"] = torch.randn(2, inputs, generator=generator)
        tensors[f"unet.{layer}.lora_B.weight"] = torch.randn(out, 2, generator=generator)
    save_file(tensors, tmp_path / "loras" / "one.safetensors")
    with_lora: dict[str, Any] = {**SIZE, "prompt": "an apple", "loras": [{"name": "one"}]}
    without: dict[str, Any] = {**SIZE, "prompt": "an apple"}
    wanted = [latents_of(plain, **each) for each in (without, with_lora)]
    found = [latents_of(fast, **each) for each in (without, with_lora, without, with_lora)]
    assert relative(wanted[0], wanted[1]) > 1e-3
    for ours, theirs in zip(found, [*wanted, *wanted], strict=True):
        assert relative(ours, theirs) < 1e-4


@pytest.mark.parametrize(
    ("one", "first"),
    [(CUDNN_ATTENTION, SDPBackend.CUDNN_ATTENTION), (FLASH_ATTENTION, SDPBackend.FLASH_ATTENTION)],
)
def test_attention_is_asked_of_the_kernel_that_was_named(
    one: Pass, first: SDPBackend, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[SDPBackend]] = []

    def noting(backends: list[SDPBackend], **how: Any) -> Any:
        asked.append(backends)
        return sdpa_kernel(backends, **how)

    monkeypatch.setattr("calotype.engine.passes.attention.sdpa_kernel", noting)
    assembly = NetworkBuilder(engine.model)
    one.apply(assembly)
    query, key, value = torch.randn(3, 2, 4, 9, 16)
    wanted = ops.attention(query, key, value, None)
    torch.testing.assert_close(assembly.operations.attention(query, key, value, None), wanted)
    assert [each[0] for each in asked] == [first]
    assert one.missing(engine.model) == "a CPU has one attention kernel"


def test_our_own_attention_leaves_the_rest_as_it_was(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = NetworkBuilder(engine.model)
    FLASH_ATTENTION.apply(assembly)
    HOPPER_ATTENTION.apply(assembly)
    query, key, value = torch.randn(3, 2, 4, 9, 16)
    ours = torch.zeros(())
    monkeypatch.setattr("calotype.engine.kernels.attention.attention", lambda *_: ours)
    wanted = ops.attention(query, key, value, None)
    torch.testing.assert_close(assembly.operations.attention(query, key, value, None), wanted)
    monkeypatch.setattr("calotype.engine.kernels.attention.supports", lambda *_: True)
    assert assembly.operations.attention(query, key, value, None) is ours
    mask = torch.ones(2, 1, 9, 9, dtype=torch.bool)
    torch.testing.assert_close(assembly.operations.attention(query, key, value, mask), wanted)


def test_our_own_attention_says_what_it_needs(engine: Engine) -> None:
    with pytest.raises(NotFoundError, match="'own_attention', and its kernel is for GPUs"):
        build_preset(engine.model, "passes:own_forward+own_attention")
    with pytest.raises(NotFoundError, match="'own_attention' builds on 'own_forward'"):
        build_preset(engine.model, "passes:own_attention")


def test_large_batches_make_more_pictures_at_once(engine: Engine) -> None:
    large = Engine(engine.model, networks=build_networks(engine.model, (LARGE_BATCH,)))
    many = engine.resolve_defaults(
        GenerateRequest.parse({"prompt": "", "width": 16, "height": 16, "count": 100})
    )
    assert (engine.plan_memory(many).batch_size, large.plan_memory(many).batch_size) == (16, 64)
