"""Compiles kernels with the real Triton for a Hopper GPU, with none at hand.

For processes of their own: Triton keeps in memory what one has compiled. Knows nothing of any test.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from calotype.engine.artifacts.build import TRITON
from calotype.engine.artifacts.lookup import use_artifacts
from calotype.engine.artifacts.store import write
from calotype.engine.artifacts.triton_cache import triton_cache_in
from calotype.engine.kernels import geglu, layer_norm
from tests.unit.engine.artifacts.stored_artifacts import SMALL, target


def compile_kernels() -> list[bool]:
    """Whether each kernel was found compiled."""
    found: list[bool] = []

    def heard(*, cache_hit: bool, **_: Any) -> None:
        found.append(cache_hit)

    hopper = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda _: 0,
    )
    x = torch.empty(64, 128, dtype=torch.float16)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "_active", hopper)
        patched.setattr(
            JITFunction,
            "__getitem__",
            lambda kernel, grid: lambda *a, **k: kernel.run(*a, grid=grid, warmup=True, **k),
        )
        for module in (geglu, layer_norm):
            patched.setattr(module, "runs_triton", lambda *_, **__: True)
        patched.setattr(knobs.compilation, "listener", heard)
        geglu.geglu(x)
        layer_norm.layer_norm(x, x[0], x[0], 1e-5)
    return found


def build() -> list[bool]:
    """Keep an engine of what is compiled."""
    found: list[bool] = []

    def fill(folder: Path) -> None:
        with triton_cache_in(folder / TRITON):
            found.extend(compile_kernels())

    write("shrunk-emoji", target(SMALL), fill)
    return found


def start() -> list[bool]:
    """Begin with that engine."""
    assert use_artifacts(target()).shapes == (SMALL,)
    return compile_kernels()
