"""Measures the peak rates of a device: matrix products, convolutions, attention, copies.

Each runs in bursts of a fraction of a second, so a device that throttles by heat or power cannot sustain
the rate: a utilization relative to it is, if anything, too low. Inputs are random, since zeros draw less
power and run faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.attention_backends import first_line
from calotype.spec.records.device_peak import NoRate, Rate, Unit, What

REPEATS = 10
_WARM_UP_CALLS = 3
_SAMPLE_S = 0.02
"""Long enough that the overhead of the timer is negligible."""
_MAX_CALLS = 1000
_SCALE = {"TFLOP/s": 1e12, "TOP/s": 1e12, "GB/s": 1e9}
_FLOATS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

Call = Callable[[], object]
SecondsOf = Callable[[Call, int], float]
"""A call and a count → seconds that so many calls take together."""


@dataclass(frozen=True)
class Sizes:
    """Problem sizes of one call."""

    matrix: int
    channels: int
    pixels: int
    """Side of the image that is convolved."""
    pictures: int
    heads: int
    tokens: int
    copied_bytes: int


ON_A_GPU = Sizes(
    matrix=8192, channels=1280, pixels=32, pictures=16, heads=10, tokens=4096, copied_bytes=2 * 2**30
)
ON_A_CPU = Sizes(
    matrix=1024, channels=128, pixels=32, pictures=1, heads=4, tokens=512, copied_bytes=256 * 2**20
)
_HEAD = 64


@dataclass(frozen=True)
class Trial:
    """One benchmark in one precision."""

    what: What
    dtype: str
    shape: str
    unit: Unit
    work: float
    """Operations or bytes per call."""
    prepare: Callable[[torch.Generator], Call]
    """Creates the inputs on the generator's device."""
    setting: Callable[[], AbstractContextManager[Any]] = nullcontext


def trials_for(device: torch.device, sizes: Sizes | None = None) -> list[Trial]:
    """The benchmarks of a device. A CPU runs only fp32, the precision it is used in."""
    if device.type != "cuda":
        own = sizes or ON_A_CPU
        return [matmul("fp32", own), _convolution("fp32", own), _attention("fp32", own), _copy(own)]
    own = sizes or ON_A_GPU
    products = [matmul(dtype, own) for dtype in ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")]
    others = [trial(dtype, own) for trial in (_convolution, _attention) for dtype in ("fp16", "bf16")]
    return [*products, *others, _copy(own)]


def measure_rate(
    trial: Trial, device: torch.device, *, repeats: int = REPEATS, seconds_of: SecondsOf | None = None
) -> Rate | NoRate:
    """Run one benchmark; returns `NoRate` with the reason if it cannot run here."""
    clock = seconds_of or (
        partial(_time_with_events, device) if device.type == "cuda" else _time_with_wall_clock
    )
    try:
        with trial.setting(), torch.inference_mode():
            calls, seconds = _samples(trial.prepare(torch.Generator(device)), repeats, clock)
    except torch.OutOfMemoryError:
        return NoRate(what=trial.what, dtype=trial.dtype, reason="the device ran out of memory")
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return NoRate(what=trial.what, dtype=trial.dtype, reason=first_line(str(error)))
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    full = trial.work / _SCALE[trial.unit]
    return Rate(
        what=trial.what,
        dtype=trial.dtype,
        shape=trial.shape,
        unit=trial.unit,
        best=full / min(seconds),
        median=full / statistics.median(seconds),
        calls=calls,
        seconds=seconds,
    )


def _samples(call: Call, repeats: int, seconds_of: SecondsOf) -> tuple[int, list[float]]:
    seconds_of(call, _WARM_UP_CALLS)
    once = seconds_of(call, 1)
    calls = max(1, min(_MAX_CALLS, round(_SAMPLE_S / once)))
    return calls, [seconds_of(call, calls) / calls for _ in range(repeats)]


def _time_with_events(device: torch.device, call: Call, count: int) -> float:
    with torch.cuda.device(device):
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start_event.record()
        for _ in range(count):
            call()
        end_event.record()
        end_event.synchronize()
    return float(start_event.elapsed_time(end_event)) / 1000


def _time_with_wall_clock(call: Call, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - started


def matmul(dtype: str, sizes: Sizes) -> Trial:
    """The product of two square matrices."""
    side = sizes.matrix

    def prepare(noise: torch.Generator) -> Call:
        if dtype == "int8":
            one, other = (_bytes(noise, side) for _ in range(2))
            return lambda: torch._int_mm(one, other.t())
        if dtype == "fp8":
            one, other = (_noise(noise, side, side).to(torch.float8_e4m3fn) for _ in range(2))
            unit = torch.ones((), device=noise.device)
            return lambda: torch._scaled_mm(
                one, other.t(), unit, unit, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        one, other = (_noise(noise, side, side).to(_FLOATS[dtype]) for _ in range(2))
        out = torch.empty_like(one)
        return lambda: torch.mm(one, other, out=out)

    setting = partial(_matmul_precision, "high" if dtype == "tf32" else "highest")
    return Trial(
        "matmul",
        dtype,
        f"{side}×{side}×{side}",
        "TOP/s" if dtype == "int8" else "TFLOP/s",
        2 * side**3,
        prepare,
        setting if dtype in ("fp32", "tf32") else nullcontext,
    )


def _convolution(dtype: str, sizes: Sizes) -> Trial:
    width, side, pictures = sizes.channels, sizes.pixels, sizes.pictures

    def prepare(noise: torch.Generator) -> Call:
        x = _noise(noise, pictures, width, side, side)
        weight = _noise(noise, width, width, 3, 3)
        x, weight = (t.to(_FLOATS[dtype], memory_format=torch.channels_last) for t in (x, weight))
        return lambda: functional.conv2d(x, weight, padding=1)

    shape = f"3×3 {width}→{width}, {side}×{side}, batch {pictures}, NHWC"
    work = 2 * 9 * width**2 * side**2 * pictures
    return Trial("convolution", dtype, shape, "TFLOP/s", work, prepare, _cudnn_benchmark)


def _attention(dtype: str, sizes: Sizes) -> Trial:
    shape = (sizes.pictures, sizes.heads, sizes.tokens, _HEAD)

    def prepare(noise: torch.Generator) -> Call:
        query, key, value = (_noise(noise, *shape).to(_FLOATS[dtype]) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(query, key, value)

    # Two products of every query with every key.
    work = 4 * sizes.pictures * sizes.heads * sizes.tokens**2 * _HEAD
    return Trial("attention", dtype, "×".join(map(str, shape)), "TFLOP/s", work, prepare)


def _copy(sizes: Sizes) -> Trial:
    def prepare(noise: torch.Generator) -> Call:
        source = _noise(noise, sizes.copied_bytes // 4)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    shape = f"{sizes.copied_bytes / 2**20:g} MiB, read and written"
    return Trial("copy", "fp32", shape, "GB/s", 2 * sizes.copied_bytes, prepare)


def _noise(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, device=generator.device, generator=generator)


def _bytes(generator: torch.Generator, side: int) -> Tensor:
    shape = (side, side)
    return torch.randint(-128, 128, shape, dtype=torch.int8, device=generator.device, generator=generator)


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
