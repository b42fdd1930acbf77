"""With the real compiler: what it makes is what it was made of, and another process need not compile it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch._inductor import config

from calotype.core.errors import CalotypeError
from calotype.engine.artifacts.build import build
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.compile.aot_package import read_package, write_package
from calotype.engine.compile.region import CompileRequest, Region, RegionSignature
from calotype.engine.compile.subprocess_compiler import SubprocessCompiler
from calotype.engine.load import load
from calotype.engine.modules.onednn_conv import pack_weights
from calotype.engine.presets import build_networks, passes_named
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights
from tests.engines import relative, small_engine
from tests.unit.engine.compile.tiny import tiny

PASSES = ("own_forward", "channels_last", "joined_qkv", "fused_norms", "fused_geglu", "compile_blocks")

LINKS_STATICALLY = """#!/bin/sh
case " $* " in *" -shared "*) exec {real} "$@" -static-libstdc++ ;; *) exec {real} "$@" ;; esac
"""
STARTED = """
import json, sys
import torch
from torch._dynamo.utils import counters
from calotype.engine.compile import aot_package
from calotype.engine.load import load
from calotype.engine.modules.unet import Unet

def refused(*_, **__):
    raise AssertionError("nothing is to be compiled, and nothing to be run uncompiled")

torch.compile = torch.export.export = torch._inductor.aoti_compile_and_package = refused
Unet.__call__ = refused
engine = load(sys.argv[1], device="cpu", preset="fast")
engine.generate("a red apple", seed=5, steps=3, width=64, height=64).images[0].save(sys.argv[2])
print(json.dumps({name: dict(found) for name, found in counters.items()}))
"""


@pytest.fixture(autouse=True)
def quick_to_compile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What only calls the kernels need not be fast, and takes a compiler longest. Kernels are as ever."""
    monkeypatch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
    monkeypatch.setenv("AOT_INDUCTOR_ENABLE_LINE_TABLES", "0")
    here = {"aot_inductor.compile_wrapper_opt_level": "O0", "aot_inductor.enable_line_tables": False}
    with config.patch(here):
        yield


class Finder:
    """Knows regions by name."""

    def __init__(self) -> None:
        self.changes, self.regions = 0, dict[str, Region]()

    def run(self, region: Region) -> Any:
        self.regions[region.name] = region
        return region.walk


def test_another_process_compiles_a_block_without_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a compiler that links its C++ library in unless it is told to take the shared one."""
    compiler = tmp_path / "g++"
    compiler.write_text(LINKS_STATICALLY.format(real=which("g++")))
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    model, found = small_engine(architecture=tiny()).model, Finder()
    build_networks(model, passes_named(PASSES), runs=found)
    region = found.regions["mid_block.attentions.0.transformer_blocks.0"]
    inputs = (torch.randn(2, 64, 32), None, None, torch.randn(2, 9, 64), None)
    forms = tuple(None if each is None else RegionSignature.of(each) for each in inputs)
    elsewhere = SubprocessCompiler(model, PASSES)
    with pytest.raises(CalotypeError, match="KeyError: 'nowhere'"):
        elsewhere(CompileRequest("none", Region("nowhere", region.module, region.walk), forms))
    made = read_package(elsewhere(CompileRequest("block", region, forms)))
    weights = list(region.weights().values())
    for tokens in (9, 40):
        given = (*inputs[:3], torch.randn(2, tokens, 64), None)
        for _ in range(2):
            with torch.inference_mode():
                wanted, answer = region.walk(*given), made(list(given), weights)
            for one, other in zip(answer, wanted, strict=True):
                assert relative(one, other) < 1e-5
            with torch.no_grad():
                region.module.get_parameter("ff.net.2.weight").mul_(-3)


def test_a_convolution_is_read_as_the_device_lays_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While torch exports, a device's library is switched off; a GPU lays pictures out otherwise without."""
    determine = torch._C._conv_determine_backend_memory_format

    def as_on_a_gpu(*given: Any) -> torch.memory_format:
        return determine(*given) if torch.backends.mkldnn.enabled else torch.contiguous_format

    monkeypatch.setattr(torch._C, "_conv_determine_backend_memory_format", as_on_a_gpu)
    found = Finder()
    build_networks(small_engine(architecture=tiny()).model, passes_named(PASSES), runs=found)
    region = found.regions["mid_block.resnets.0"]
    picture = torch.randn(2, 32, 8, 8).contiguous(memory_format=torch.channels_last)
    inputs = (picture, None, torch.randn(32), None, torch.randn(2, 32))
    forms = tuple(None if each is None else RegionSignature.of(each) for each in inputs)
    write_package(CompileRequest("block", region, forms), tmp_path / "block.pt2")
    with torch.inference_mode():
        answer = read_package(tmp_path / "block.pt2")(list(inputs), list(region.weights().values()))
        for one, other in zip(answer, region.walk(*inputs), strict=True):
            assert one is other is None or relative(one, other) < 1e-5


def test_onednns_arithmetic_is_compiled_for_weights_to_come(tmp_path: Path) -> None:
    """They are packed as they are then, and the kernels are Winograd's, a usual one's and a shortcut's."""
    passes = (*PASSES[:2], "wide_products", "wide_convolutions", "compile_blocks")
    model, found = small_engine(architecture=tiny()).model, Finder()
    network = build_networks(model, passes_named(passes), runs=found).unet
    region = found.regions["up_blocks.0.resnets.0"]
    picture, skip = (torch.randn(2, 32, 24, 24).contiguous(memory_format=torch.channels_last) for _ in "ab")
    inputs = (picture, None, torch.randn(32), skip, torch.randn(2, 32))
    forms = tuple(None if each is None else RegionSignature.of(each) for each in inputs)
    write_package(CompileRequest("block", region, forms), tmp_path / "block.pt2")
    made = read_package(tmp_path / "block.pt2")
    for _ in range(2):
        with torch.inference_mode():
            answer, wanted = made(list(inputs), pack_weights(region)), region.walk(*inputs)
        for one, other in zip(answer, wanted, strict=True):
            assert one is other is None or relative(one, other) < 1e-5
        with torch.no_grad():
            for name in ("conv1", "conv2", "conv_shortcut"):
                region.module.get_parameter(f"{name}.weight").mul_(-3)
        network.invalidate()


def test_a_second_process_makes_its_first_picture_without_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    folder, picture = tmp_path / "model", tmp_path / "picture.png"
    write_folder(RandomWeights(tiny(), 0), folder)
    build(str(folder), preset="fast", shapes=[Shape(64, 64)], device="cpu")
    ran = subprocess.run(
        [sys.executable, "-c", STARTED, str(folder), str(picture)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert not any(json.loads(ran.stdout).values())
    plain = load(str(folder), device="cpu")
    wanted = plain.generate("a red apple", seed=5, steps=3, width=64, height=64).images[0]
    found = np.asarray(Image.open(picture), dtype=np.int16)
    assert np.abs(found - np.asarray(wanted, dtype=np.int16)).max() <= 1
