"""Compiles the Triton kernels for a Hopper GPU, with none at hand, and says what came out.

A program of its own (`asked.py` starts it): Triton is told that such a GPU is here, and launches end
behind the compiler. Reads cases as JSON from its input and prints, for each, what every kernel became.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from calotype.engine.kernels import (
    adamw,
    attention,
    attention_hopper,
    fp8_conv,
    fp8_conv_triton,
    geglu,
    geglu_backward,
    group_norm,
    int8_matmul,
    layer_norm,
    quantize,
    upsample,
)
from calotype.engine.kernels.int8_tile_config import Plan

Found = dict[str, Any]
_TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


def resources(kernel: Any) -> Found:
    """How it moves memory, and what it needs of a multiprocessor."""
    text = kernel.asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        used = dict(
            re.findall(r"(REG|STACK|LOCAL):(\d+)", asked(_TOOLS / "cuobjdump", "-res-usage", file.name))
        )
    return {
        "name": kernel.name,
        "wide_loads": wide_share(text, "ld.global", 16),
        # Eight bits are half of what was read: what a thread loads in sixteen bytes it stores in eight.
        "wide_stores": wide_share(text, "st.global", 8),
        "products": sorted(set(re.findall(r"wgmma\.mma_async[.\w]*", text))),
        "copied_in_boxes": "cp.async.bulk.tensor" in text,
        "waits_after_each": waits_after_each(text),
        "some_under_way": bool(re.search(r"wgmma\.wait_group\.sync\.aligned [1-9]", text)),
        "copy_engine": [
            way for way in ("shared", "global") if re.search(rf"cp\.async\.bulk\.tensor\.\dd\.{way}", text)
        ],
        "powers_under_way": powers_under_way(kernel.asm["cubin"]),
        "shares_registers": "setmaxnreg" in text,
        "shared_bytes": kernel.metadata.shared,
        "registers": int(used["REG"]),
        "spilled_bytes": int(used["STACK"]) + int(used["LOCAL"]),
        "warps": kernel.metadata.num_warps,
    }


def waits_after_each(text: str) -> bool:
    """Whether the assembler says that products are not begun before the one before has ended."""
    if "wgmma.mma_async" not in text:
        return False
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file, tempfile.NamedTemporaryFile() as made:
        file.write(text)
        file.flush()
        said = asked(_TOOLS / "ptxas", "-v", "--gpu-name=sm_90a", file.name, "-o", made.name)
    assert "Used" in said, said
    return "serialized" in said


def asked(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout + done.stderr


def powers_under_way(cubin: bytes) -> list[int]:
    """Powers of two that are worked out while products are under way: behind each wait that leaves some.

    In the order of the machine's own instructions, which the assembler chooses.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = asked(_TOOLS / "cuobjdump", "-sass", file.name)
    found: list[int] = []
    under_way = False
    for wait, left, power in re.findall(r"(DEPBAR\.LE gsb0, 0x(\d))|(MUFU\.EX2)", text):
        if wait:
            under_way = left != "0"
            found += [0] * under_way
        elif power and under_way:
            found[-1] += 1
    return found


def wide_share(text: str, instruction: str, least: int) -> float:
    """Of what one thread loads or stores, the part that moves so many bytes at a time."""
    found = re.findall(rf"{re.escape(instruction)}[.\w:]*?(?:\.v(\d))?\.[bsuf](\d+)\b", text)
    bits = [int(count or 1) * int(each) for count, each in found]
    return sum(each for each in bits if each >= 8 * least) / max(1, sum(bits))


def pictures(case: Found, channels: int) -> Tensor:
    n, _, height, width = case["shape"]
    shape = (n, channels, height, width)
    dtype = getattr(torch, case.get("dtype", "float16"))
    return torch.empty(shape, dtype=dtype, memory_format=torch.channels_last)


def run_group_norm(case: Found) -> None:
    channels = case["shape"][1]
    weight = torch.empty(channels, dtype=torch.float16)
    first = case.get("first", channels)
    x = pictures(case, first)
    addend, extra = (x, weight[:first]) if case.get("sum") else (None, None)
    factor = case.get("factor")
    if first < channels:
        group_norm.group_norm_concat(
            x,
            pictures(case, channels - first),
            weight,
            weight,
            32,
            1e-5,
            silu=True,
            addend=addend,
            extra=extra,
            factor=factor,
        )
    elif case.get("sum"):
        group_norm.add_group_norm(x, addend, extra, weight, weight, 32, 1e-5, silu=True, factor=factor)
    else:
        shift = torch.empty(case["shape"][0], channels, dtype=torch.float16) if case.get("shift") else None
        group_norm.group_norm(x, weight, weight, 32, 1e-5, silu=True, shift=shift, factor=factor)


def run_rows(case: Found) -> None:
    x = torch.empty(case["shape"], dtype=torch.float16)
    weight = x[0]
    ways: dict[str, Callable[[], object]] = {
        "layer_norm": lambda: layer_norm.layer_norm(x, weight, weight, 1e-5),
        "add_layer_norm": lambda: layer_norm.add_layer_norm(
            x, x, weight, weight, 1e-5, bias_of_residual=weight
        ),
        "geglu": lambda: geglu.geglu(x),
        "layer_norm_quantised": lambda: layer_norm.layer_norm_quantized(
            x, weight, weight, 1e-5, case["kind"], scale=case.get("scale")
        ),
        "geglu_quantised": lambda: geglu.geglu_quantized(x, case["kind"]),
        "quantise_rows": lambda: quantize.quantize_rows(x, case["kind"]),
    }
    ways[case["of"]]()


def run_product(case: Found) -> None:
    rows, depth, width = case["shape"]
    x, weight = (
        quantize.Quantized(torch.empty(size, depth, dtype=torch.int8), torch.empty(size, 1))
        for size in (rows, width)
    )
    bias = torch.empty(width, dtype=torch.float16)
    plan = Plan(**case["plan"]) if "plan" in case else None
    int8_matmul.planned(x, weight, bias, torch.float16, plan)


def run_convolution(case: Found) -> None:
    n, channels, height, width = case["shape"]
    values = torch.empty((n, height, width, channels), dtype=fp8_conv.E4M3).permute(0, 3, 1, 2)
    weight = torch.empty((9, case["made"], channels), dtype=fp8_conv.E4M3)
    settings = (fp8_conv.Weight(weight, torch.empty(case["made"])), None, torch.bfloat16)
    tile = fp8_conv_triton.Tile(**case["tile"]) if "tile" in case else None
    fp8_conv_triton.launch(values, *settings, tile)


def run_adamw(case: Found) -> None:
    each = [torch.empty(size) for size in case["sizes"]]
    averages = each if case["averaged"] else []
    settings = adamw.Settings(1e-4, 0.01, (0.9, 0.999), 1e-8, 1e-4)
    flag = torch.zeros((), dtype=torch.bool)
    adamw.update(
        adamw.Updated(each, each, each, each, averages), torch.ones(len(each)), flag.float(), flag, settings
    )


def run_geglu_backward(case: Found) -> None:
    rows, width = case["shape"]
    dtype = getattr(torch, case["dtype"])
    gradient, projected = (torch.empty(rows, size, dtype=dtype) for size in (width, 2 * width))
    geglu_backward.geglu_backward(gradient, projected, torch.empty(2 * width))


def run_attention(case: Found) -> None:
    rows, heads, places, channels = case["shape"]
    joined = torch.empty(rows, places, 3, heads, channels, dtype=getattr(torch, case.get("dtype", "float16")))
    query, key, value = joined.permute(2, 0, 3, 1, 4).unbind()
    attention_hopper.launch(query, key, value, attention.Plan(**case["plan"]))


RUNS: dict[str, Callable[[Found], object]] = {
    "group_norm": run_group_norm,
    "rows": run_rows,
    "product": run_product,
    "convolution": run_convolution,
    "attention": run_attention,
    "adamw": run_adamw,
    "geglu_backward": run_geglu_backward,
    "upsample": lambda case: upsample.upsample_nearest2x(pictures(case, case["shape"][1])),
}


def main() -> None:
    made: list[Any] = []

    def compiled_only(kernel: Any, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: made.append(kernel.run(*args, grid=grid, warmup=True, **kwargs))

    hopper = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda _: 0,
    )
    found = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "_active", hopper)
        patched.setattr(JITFunction, "__getitem__", compiled_only)
        for module in (geglu, group_norm, layer_norm, quantize, upsample):
            patched.setattr(module, "runs_triton", lambda *_, **__: True)
        for module in (adamw, geglu_backward):
            patched.setattr(module, "runs_triton_on", lambda *_, **__: True)
        for case in json.load(sys.stdin):
            made.clear()
            RUNS[case["operation"]](case)
            found.append([resources(kernel) for kernel in made])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
