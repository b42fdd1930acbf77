"""What presets order from a compiler, and when; the compiler is one that never gets done, or does nothing."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch
from safetensors.torch import save_file

from calotype.engine import presets
from calotype.engine.compile.manager import CompiledFunctions, CompileManager
from calotype.engine.compile.region import CompileRequest
from calotype.engine.compile.subprocess_compiler import max_parallel_compiles
from calotype.engine.engine import Engine
from calotype.engine.modules import onednn
from calotype.models.model import Model
from tests.engines import difference, latents_of, relative, small_engine

SIZE: dict[str, Any] = {"width": 64, "height": 48, "steps": 2}
LAYERS = ("mid_block.attentions.0.transformer_blocks.0.attn1.to_q", "mid_block.resnets.0.conv1")


class Compiler:
    """In the place of `SubprocessCompiler`: "compiles" by remembering which region it was."""

    def __init__(self) -> None:
        self.orders: list[CompileRequest] = []
        self.runs: list[str] = []
        self.go_on = Event()

    def made_for(self, _: Model, __: Sequence[str], ___: int) -> Compiler:
        return self

    def __call__(self, order: CompileRequest) -> Path:
        self.orders.append(order)
        assert self.go_on.wait(60)
        return Path(str(len(self.orders) - 1))

    def end(self) -> None:
        """Nothing of it is anywhere else."""

    def load(self, path: Path) -> CompiledFunctions:
        region = self.orders[int(str(path))].region

        def run(inputs: Sequence[torch.Tensor | None], weights: Sequence[torch.Tensor]) -> Any:
            self.runs.append(region.name)
            assert len(weights) == len(region.weights())
            named = dict(zip(region.weights(), weights, strict=True))
            around = torch.nn.Module()
            around.module = region.module
            around.forward = region.walk
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(torch.compiler, "is_compiling", lambda: True)
                return torch.func.functional_call(
                    around, {f"module.{name}": each for name, each in named.items()}, tuple(inputs)
                )

        return run


@pytest.fixture(params=["narrow", "wide"])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """For processors of both kinds."""
    one = Compiler()
    monkeypatch.setattr(onednn, "is_faster_here", lambda: request.param == "wide")
    monkeypatch.setattr(presets, "SubprocessCompiler", one.made_for)
    monkeypatch.setattr(presets, "read_package", one.load)
    return one


def done(engine: Engine) -> None:
    """Wait for the compiler."""
    assert isinstance(engine._networks.runs, CompileManager)
    engine._networks.runs.finish()


def lora(folder: Path, engine: Engine) -> dict[str, Any]:
    (folder / "loras").mkdir()
    tensors = {}
    for layer in LAYERS:
        out, inputs, *kernel = engine.model.unet.get_submodule(layer).weight.shape
        tensors[f"unet.{layer}.lora_A.weight"] = torch.randn(2, inputs, *kernel)
        tensors[f"unet.{layer}.lora_B.weight"] = torch.randn(out, 2, *[1 for _ in kernel])
    save_file(tensors, folder / "loras" / "one.safetensors")
    return {"loras": [{"name": "one"}]}


def test_pictures_come_before_the_compiler_is_done(compiler: Compiler) -> None:
    plain, engine = small_engine(), small_engine(preset="max-throughput")
    asked: dict[str, Any] = {**SIZE, "seed": 4}
    wanted = plain.generate("a red apple", **asked).images[0]
    # It would wait here forever if it waited.
    assert difference(engine.generate("a red apple", **asked).images[0], wanted) <= 1
    assert compiler.runs == []
    compiler.go_on.set()
    done(engine)
    assert difference(engine.generate("a red apple", **asked).images[0], wanted) <= 1
    assert compiler.runs == ["unet", "unet"]


def test_only_another_shape_is_compiled_for(compiler: Compiler, tmp_path: Path) -> None:
    compiler.go_on.set()
    engine = small_engine(preset="max-throughput", models_folder=tmp_path)
    plain = small_engine(models_folder=tmp_path)
    with_lora = lora(tmp_path, engine)
    latents_of(engine, **SIZE)
    done(engine)
    for changes in (
        {"prompt": "a very long description of a red apple " * 9},
        {"seed": 9},
        {"cfg": 2.5},
        {"steps": 3, "sampler": "heun"},
        with_lora,
        {},
    ):
        asked = {**SIZE, **changes}
        compiler.runs.clear()
        assert relative(latents_of(engine, **asked), latents_of(plain, **asked)) < 1e-4
        assert len(compiler.orders) == 1
        assert set(compiler.runs) == {"unet"}
    latents_of(engine, **{**SIZE, "width": 32})
    done(engine)
    assert len(compiler.orders) == 2


def test_fast_orders_nothing(compiler: Compiler) -> None:
    latents_of(small_engine(preset="fast"), **SIZE)
    assert compiler.orders == []


def test_an_engine_is_let_go_of_while_its_compiler_is_at_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subprocess, "Popen", partial(_never_done, subprocess.Popen))
    engine = small_engine(preset="max-throughput")
    latents_of(engine, **SIZE)
    works = engine._networks.runs
    assert isinstance(works, CompileManager)
    [worker], there = works._workers, ref(engine.model.unet)
    del engine, works
    gc.collect()
    worker.join(30)
    assert not worker.is_alive()
    assert there() is None
    assert caplog.messages == []


def _never_done(start: Any, _: list[str], **how: Any) -> Any:
    return start(["sleep", "600"], **how)


@pytest.mark.parametrize(
    ("device", "cores", "gigabytes", "at_once"),
    [("cpu", 64, 0, 1), ("cuda", 64, 141, 4), ("cuda", 8, 141, 2), ("cuda", 64, 40, 2), ("cuda", 2, 10, 1)],
)
def test_as_many_compile_at_once_as_cores_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch, device: str, cores: int, gigabytes: int, at_once: int
) -> None:
    properties = SimpleNamespace(total_memory=gigabytes * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert max_parallel_compiles(torch.device(device)) == at_once


def test_repeated_blocks_are_compiled_once(compiler: Compiler) -> None:
    usual = [name for name in presets.pass_names("fast", "cpu") if name != "compiled_ahead"]
    blocks = f"{presets.CUSTOM_PREFIX}{'+'.join([*usual, 'compile_blocks'])}"
    plain, engine = small_engine(), small_engine(preset=blocks)
    compiler.go_on.set()
    wanted = latents_of(plain, **SIZE)
    assert relative(latents_of(engine, **SIZE), wanted) < 1e-4
    done(engine)
    assert relative(latents_of(engine, **SIZE), wanted) < 1e-4
    names = [order.region.name for order in compiler.orders]
    layers = [name for name in names if "transformer_blocks" in name]
    kept = [name for name, _ in engine.model.unet.named_modules() if name.endswith("attn1")]
    # Two widths, and the first layer of all, where latents are fewer than prompts.
    assert len(layers) == 3 < len(kept)
    assert len(names) == len({order.signature for order in compiler.orders})
    assert len(compiler.runs) > len(names)
