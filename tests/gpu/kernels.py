"""The kernels on a GPU, run by hand on one: `python -m tests.gpu.kernels --out kernels.json`.

Every kernel at the shapes of SD 1.5 and SDXL: against torch in fp32, alone against in a batch, and its time
inside a CUDA graph beside torch eager's. Prints a row for each and ends with 1 if one was wrong. With
`--device cpu` the shapes are small and the numbers mean nothing: a rehearsal of this file. Not collected by
pytest: the machines that run the tests have no GPU.

`--only "fp8 convolution" --dtype bfloat16` is meant to take less than a minute: the convolutions of SDXL's
residual blocks in e4m3 with several tiles beside cuDNN's in bf16, their norms in e4m3 beside those in bf16,
and at the end the fastest tiles and what an evaluation of SDXL would take with them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.add import add as add_alone
from calotype.engine.kernels.fp8_convolution import (
    Weight,
    fp8_convolution,
    in_e4m3,
    quantised_weight,
    runs_kernel_on,
)
from calotype.engine.kernels.fp8_convolution import plain as plain_convolution
from calotype.engine.kernels.geglu import geglu, geglu_quantised
from calotype.engine.kernels.group_norm import add_group_norm, group_norm, group_norm_of_pair
from calotype.engine.kernels.int8_product import int8_product
from calotype.engine.kernels.int8_product import plain as plain_product
from calotype.engine.kernels.layer_norm import add_layer_norm, layer_norm, layer_norm_quantised
from calotype.engine.kernels.quantise import LARGEST, Kind, Quantised, plain, quantise_rows
from calotype.engine.kernels.upsample import upsample_nearest2x
from calotype.engine.probe import full_fingerprint
from tests.gpu import attention, int8_products

EPS = 1e-5
# Beyond the rounding of the result's own dtype, of numbers around one.
TOLERANCE = 2e-4
CALLS_PER_GRAPH = 20
REPLAYS = 15

# (channels, side, batch sizes): the ends of each UNet, at 512 and 1024 pixels.
PICTURES = [
    (320, 64, (1, 2, 16)),
    (640, 32, (2,)),
    (1280, 16, (2, 16)),
    (1280, 8, (2,)),
    (320, 128, (2, 32)),
    (640, 64, (2, 32)),
    (1280, 32, (2, 32)),
]
# (channels before the skip connection, channels of it, side, batch sizes)
PAIRS = [
    (320, 320, 64, (2, 16)),
    (640, 320, 64, (2,)),
    (1280, 640, 32, (2,)),
    (1280, 1280, 8, (2,)),
    (640, 320, 128, (32,)),
    (1280, 640, 64, (2, 32)),
]
# (width, side, batch sizes) of transformers
ROWS = [(320, 64, (2, 16)), (640, 32, (2,)), (1280, 16, (2,)), (640, 64, (2, 32)), (1280, 32, (2, 32))]
# (width before, width behind, side, batch size) of products in eight bits: every kind of tile.
PRODUCTS = [
    (320, 320, 64, 2),
    (320, 2560, 64, 2),
    (640, 640, 64, 32),
    (1280, 3840, 32, 32),
    (5120, 1280, 32, 32),
]
KINDS: tuple[Kind, ...] = ("int8", "fp8")
# (channels in, channels out, side, how many in an evaluation of SDXL) of its residual blocks.
CONVOLUTIONS = [
    (320, 320, 128, 7),
    (640, 320, 128, 2),
    (960, 320, 128, 1),
    (320, 640, 64, 1),
    (640, 640, 64, 6),
    (960, 640, 64, 1),
    (1280, 640, 64, 1),
    (1920, 640, 64, 1),
    (640, 1280, 32, 1),
    (1280, 1280, 32, 10),
    (1920, 1280, 32, 1),
    (2560, 1280, 32, 2),
]
CONVOLVED = 16
"""Rows: eight pictures with guidance."""
TILED = {(320, 128), (640, 64), (1280, 32), (2560, 32)}
"""Channels in and side of those that are tried with every tile: each of them has to be compiled."""
TILES: list[dict[str, Any]] = [
    {"places": 256, "channels": 128},
    {"places": 256, "channels": 128, "stages": 4},
    {"places": 128, "channels": 256},
    {"places": 128, "channels": 256, "more": 64},
    {"places": 128, "channels": 128, "stages": 4},
    # Two of these on a multiprocessor.
    {"places": 128, "channels": 128, "warps": 4},
    {"places": 256, "channels": 64, "warps": 4, "stages": 2},
    {"places": 256, "channels": 128, "taps": 3},
    {"places": 256, "channels": 128, "boxes": False},
]
FACTOR = 4.0
OWN_SUMS = 0.1
"""How far the tensor cores' own sums may be from exact ones, of numbers around one: they keep fewer bits."""


@dataclass(frozen=True)
class Case:
    """One kernel at one shape; every input is a batch."""

    name: str
    inputs: tuple[Tensor, ...]
    ours: Callable[..., Any]
    eager: Callable[..., Any]
    num_bytes: int
    """What has to be read and written at least."""
    reference: Callable[..., Any] | None = None
    """What fp32 inputs are to give; `eager` if not said."""
    exactly: bool = False
    """Whether `eager` has to give the same to the bit."""
    tolerance: float = TOLERANCE
    same_alone: bool = True
    """Whether a picture has to be the same to the bit alone and in the batch."""
    operations: int = 0
    """Multiplications and additions, where they are what counts."""
    layer: str = ""
    """A convolution that other cases do as well."""
    times: int = 0
    """In an evaluation of SDXL."""
    calls: int = CALLS_PER_GRAPH


@dataclass(frozen=True)
class Row:
    name: str
    passed: bool
    error: float
    alone: bool
    ours_us: float
    eager_us: float
    terabytes_per_s: float
    teraflops: float = 0.0
    layer: str = ""
    times: int = 0


class Bench:
    """Draws inputs where the cases run; on a CPU, small ones."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.small = device.type == "cpu"

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype) + 0.5

    def pictures(self, n: int, channels: int, side: int) -> Tensor:
        side = max(2, side // 16) if self.small else side
        return self.numbers(n, channels, side, side).contiguous(memory_format=torch.channels_last)

    def rows(self, n: int, side: int, width: int) -> Tensor:
        side = max(2, side // 16) if self.small else side
        return self.numbers(n, side * side, width)

    def parameters(self, width: int) -> tuple[Tensor, Tensor]:
        return self.numbers(width), self.numbers(width)


def size(*tensors: Tensor) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def picture_cases(bench: Bench) -> Iterator[Case]:
    for channels, side, batches in PICTURES:
        weight, bias = bench.parameters(channels)
        for n in batches:
            x, shift = bench.pictures(n, channels, side), bench.numbers(n, channels)

            def shifted(x: Tensor, shift: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                return group_norm(x, w, b, 32, EPS, silu=True, shift=shift)

            def eager(x: Tensor, shift: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                moved = x + shift[:, :, None, None]
                return functional.silu(functional.group_norm(moved, 32, w.to(x), b.to(x), EPS))

            yield Case(f"group norm {n}×{channels}×{side}²", (x, shift), shifted, eager, 2 * size(x))
    for channels, side, n in ((1280, 16, 2), (640, 64, 2), (640, 64, 32)):
        x = bench.pictures(n, channels, side)
        name = f"upsample {n}×{channels}×{side}²"
        yield Case(name, (x,), upsample_nearest2x, _eager_upsample, 5 * size(x))


def _eager_upsample(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0)


def pair_cases(bench: Bench) -> Iterator[Case]:
    for first, second, side, batches in PAIRS:
        weight, bias = bench.parameters(first + second)
        for n in batches:
            a, b = bench.pictures(n, first, side), bench.pictures(n, second, side)

            def ours(a: Tensor, b: Tensor, w: Tensor = weight, bias: Tensor = bias) -> tuple[Tensor, Tensor]:
                return group_norm_of_pair(a, b, w, bias, 32, EPS, silu=True)

            def eager(a: Tensor, b: Tensor, w: Tensor = weight, bias: Tensor = bias) -> tuple[Tensor, Tensor]:
                joined = torch.cat([a, b], 1)
                normed = functional.group_norm(joined, 32, w.to(a), bias.to(a), EPS)
                return functional.silu(normed), joined

            yield Case(f"group norm {n}×({first}+{second})×{side}²", (a, b), ours, eager, 3 * size(a, b))


def sum_cases(bench: Bench) -> Iterator[Case]:
    """Beside the sum in a kernel of its own and the norm of it, which must say the same."""
    for channels, side, batches in PICTURES:
        for n in batches:
            x, addend = bench.pictures(n, channels, side), bench.pictures(n, channels, side)
            name = f"group norm of sum {n}×{channels}×{side}²"
            yield _of_sum(name, bench, (x, addend), 5 * size(x))
    for first, second, side, batches in PAIRS:
        for n in batches:
            a, addend, b = (bench.pictures(n, width, side) for width in (first, first, second))
            name = f"group norm of sum {n}×({first}+{second})×{side}²"
            yield _of_sum(name, bench, (a, addend, b), 4 * size(a, b) + size(a))


def _of_sum(name: str, bench: Bench, inputs: tuple[Tensor, ...], num_bytes: int) -> Case:
    first = inputs[0].shape[1]
    channels = sum(each.shape[1] for each in (inputs[0], *inputs[2:]))
    norm, extra = (*bench.parameters(channels), 32, EPS), bench.numbers(first)

    def ours(x: Tensor, addend: Tensor, *skip: Tensor) -> tuple[Tensor, Tensor]:
        if skip:
            return group_norm_of_pair(x, skip[0], *norm, silu=True, addend=addend, extra=extra)
        return add_group_norm(x, addend, extra, *norm, silu=True)

    def apart(x: Tensor, addend: Tensor, *skip: Tensor) -> tuple[Tensor, Tensor]:
        total = add_alone(x.permute(0, 2, 3, 1), addend.permute(0, 2, 3, 1), extra).permute(0, 3, 1, 2)
        if skip:
            return group_norm_of_pair(total, skip[0], *norm, silu=True)
        return group_norm(total, *norm, silu=True), total

    def reference(x: Tensor, addend: Tensor, *skip: Tensor) -> tuple[Tensor, Tensor]:
        # The sum is rounded to the dtype of the pictures, whatever is normalised then.
        total = (x + addend + extra.float()[:, None, None]).to(extra).float()
        joined = torch.cat([total, *skip], 1)
        weight, bias = (each.float() for each in norm[:2])
        return functional.silu(functional.group_norm(joined, 32, weight, bias, EPS)), joined

    return Case(name, inputs, ours, apart, num_bytes, reference, exactly=True)


def row_cases(bench: Bench) -> Iterator[Case]:
    for width, side, batches in ROWS:
        weight, bias = bench.parameters(width)
        for n in batches:
            x, residual = bench.rows(n, side, width), bench.rows(n, side, width)
            wide = bench.rows(n, side, 8 * width)
            shape = f"{n}×{side}²×{width}"

            def norm(x: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                return layer_norm(x, w, b, EPS)

            def eager_norm(x: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                return functional.layer_norm(x, x.shape[-1:], w.to(x), b.to(x), EPS)

            def add(x: Tensor, r: Tensor, w: Tensor = weight, b: Tensor = bias) -> tuple[Tensor, Tensor]:
                return add_layer_norm(x, r, w, b, EPS)

            def eager_add(
                x: Tensor, r: Tensor, w: Tensor = weight, b: Tensor = bias
            ) -> tuple[Tensor, Tensor]:
                total = x + r
                return functional.layer_norm(total, x.shape[-1:], w.to(x), b.to(x), EPS), total

            def rounded_add(x: Tensor, r: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                # The sum is rounded to the dtype of the rows, whatever is normalised then.
                return functional.layer_norm((x + r).to(w).float(), x.shape[-1:], w.float(), b.float(), EPS)

            inputs = (x, residual)
            yield Case(f"layer norm {shape}", (x,), norm, eager_norm, 2 * size(x))
            yield Case(f"layer norm of sum {shape}", inputs, add, eager_add, 4 * size(x), rounded_add)
            yield Case(f"gate {n}×{side}²×{8 * width}", (wide,), geglu, eager_geglu, 3 * size(wide) // 2)


def eager_geglu(x: Tensor) -> Tensor:
    value, gate = x.chunk(2, -1)
    return value * functional.gelu(gate)


def quantised_cases(bench: Bench) -> Iterator[Case]:
    for width, side, n in ((320, 64, 2), (640, 64, 32), (1280, 32, 32)):
        weight, bias = bench.parameters(width)
        x, wide = bench.rows(n, side, width), bench.rows(n, side, 8 * width)
        for kind in KINDS:

            def rows(x: Tensor, kind: Kind = kind) -> Quantised:
                return quantise_rows(x, kind)

            def norm(x: Tensor, w: Tensor = weight, b: Tensor = bias, kind: Kind = kind) -> Quantised:
                return layer_norm_quantised(x, w, b, EPS, kind)

            def gate(x: Tensor, kind: Kind = kind) -> Quantised:
                return geglu_quantised(x, kind)

            def exact_norm(x: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                return functional.layer_norm(x, x.shape[-1:], w.to(x), b.to(x), EPS)

            def eager_rows(x: Tensor, kind: Kind = kind) -> Quantised:
                return plain(x, kind)

            def eager_norm(
                x: Tensor, exact: Callable[..., Tensor] = exact_norm, kind: Kind = kind
            ) -> Quantised:
                return plain(exact(x), kind)

            def eager_gate(x: Tensor, kind: Kind = kind) -> Quantised:
                return plain(eager_geglu(x), kind)

            shape = f"{kind} {n}×{side}²×{width}"
            count = x.numel()
            yield Case(f"rows in {shape}", (x,), rows, eager_rows, size(x) + count, lambda x: x)
            yield Case(f"layer norm in {shape}", (x,), norm, eager_norm, size(x) + count, exact_norm)
            yield Case(f"gate in {shape}", (wide,), gate, eager_gate, size(wide) + 4 * count, eager_geglu)


def product_cases(bench: Bench) -> Iterator[Case]:
    """Beside torch's own product of whole numbers, with the scaling after it."""
    for width, wide, side, n in PRODUCTS:
        weight = quantise_rows(bench.numbers(wide, width) / width**0.5, "int8")
        name = f"int8 product {n}×{side}²×{width}→{wide}"
        yield _product(name, bench.rows(n, side, width), weight, bench.numbers(wide))


def _product(name: str, x: Tensor, weight: Quantised, bias: Tensor) -> Case:
    def ours(x: Tensor, multiply: Callable[..., Tensor] = int8_product) -> Tensor:
        rows = quantise_rows(x.flatten(0, -2), "int8")
        return multiply(rows, weight, bias, bias.dtype).unflatten(0, x.shape[:-1])

    def exact(x: Tensor) -> Tensor:
        numbers, factors = (each.values.float() * each.scale for each in (quantise_rows(x, "int8"), weight))
        return functional.linear(numbers, factors, bias.float())

    num_bytes = size(x, weight.values) + size(bias) * x.numel() // x.shape[-1]
    return Case(name, (x,), ours, partial(ours, multiply=plain_product), num_bytes, exact)


def convolution_cases(bench: Bench) -> Iterator[Case]:
    """Beside torch's own in half precision; then the norms before them, beside those in half precision."""
    for channels, made, side, times in CONVOLUTIONS:
        exact = functional.silu(bench.pictures(CONVOLVED, channels, side))
        wide = (bench.numbers(made, channels, 3, 3) - 0.5) / (9 * channels) ** 0.5
        yield from _convolutions(exact, wide.contiguous(memory_format=torch.channels_last), side, times)
    for channels, side in ((320, 128), (640, 64), (1280, 32), (2560, 32)):
        x, shift = bench.pictures(CONVOLVED, channels, side), bench.numbers(CONVOLVED, channels)
        norm = (*bench.parameters(channels), 32, EPS)
        yield _norm_in_e4m3(f"fp8 convolution's norm {CONVOLVED}×{channels}×{side}²", x, shift, norm)


def _convolutions(exact: Tensor, wide: Tensor, side: int, times: int) -> Iterator[Case]:
    made, channels = wide.shape[:2]
    x, weight = in_e4m3(exact, FACTOR), quantised_weight(wide, FACTOR)
    layer = f"{channels}→{made} at {side}²"

    def eager(_: Tensor) -> Tensor:
        return functional.conv2d(exact, wide, padding=1)

    @cache
    def wanted() -> Tensor:
        return plain_convolution(x, weight, None, torch.float32)

    for name, ours in _ways(weight, exact, tried=(channels, side) in TILED):
        yield Case(
            f"fp8 convolution {layer}, {name}",
            (x,),
            ours,
            eager,
            size(x, weight.values) + size(exact) * made // channels,
            lambda _: wanted(),
            tolerance=OWN_SUMS,
            same_alone=runs_kernel_on(x.device),
            operations=2 * wide.numel() * exact.numel() // channels,
            layer=layer,
            times=times,
            calls=4,
        )


def _ways(weight: Weight, exact: Tensor, *, tried: bool) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """As it is done, and with every tile."""
    yield "as chosen", partial(fp8_convolution, weight=weight, bias=None, dtype=exact.dtype)
    if not (tried and runs_kernel_on(exact.device)):
        return
    from calotype.engine.kernels.fp8_convolution_triton import Tile, launch

    for each in TILES:
        tile = Tile(**each)
        if exact.shape[1] % tile.depth:
            tile = replace(tile, depth=tile.depth // 2, stages=2 * tile.stages)
        yield str(tile), partial(launch, weight=weight, bias=None, dtype=exact.dtype, tile=tile)


def _norm_in_e4m3(name: str, x: Tensor, shift: Tensor, norm: tuple[Tensor, Tensor, int, float]) -> Case:
    def ours(x: Tensor, shift: Tensor, factor: float | None = FACTOR) -> Tensor:
        return group_norm(x, *norm, silu=True, shift=shift, factor=factor)

    def reference(x: Tensor, shift: Tensor) -> Tensor:
        weight, bias = (each.float() for each in norm[:2])
        normal = functional.group_norm(x + shift[:, :, None, None], 32, weight, bias, EPS)
        return (functional.silu(normal) * FACTOR).clamp(-LARGEST["fp8"], LARGEST["fp8"])

    # Below 2^-6 the steps of e4m3 no longer shrink with the numbers.
    smallest_step = 2.0**-10
    num_bytes = size(x) + x.numel()
    half = partial(ours, factor=None)
    return Case(name, (x, shift), ours, half, num_bytes, reference, tolerance=TOLERANCE + smallest_step)


def leaves(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def error_of(case: Case) -> float:
    """Of the first result, beyond what its dtype's rounding explains."""
    found = case.ours(*case.inputs)
    wanted = leaves((case.reference or case.eager)(*(each.float() for each in case.inputs)))[0]
    if isinstance(found, Quantised):
        # Half a step of eight bits, measured in the row's largest number, in place of the dtype's rounding.
        largest = wanted.abs().amax(-1, keepdim=True)
        int8 = found.values.dtype == torch.int8
        finest = largest / LARGEST["fp8"] / 1024
        allowed = largest / (2 * LARGEST["int8"]) if int8 else wanted.abs() / 16 + finest
        away = (found.values.float() * found.scale - wanted).abs() - 1.001 * allowed
        return float((away / largest).max())
    got = leaves(found)[0]
    step = torch.finfo(got.dtype).eps / 2
    return float(((got.float() - wanted).abs() - step * wanted.abs()).max())


def is_the_same_alone(case: Case) -> bool:
    whole = leaves(case.ours(*case.inputs))
    alone = leaves(case.ours(*(each[-1:] for each in case.inputs)))
    return all(torch.equal(one[-1:].float(), other.float()) for one, other in zip(whole, alone, strict=True))


def is_the_same_as_eager(case: Case) -> bool:
    ours, eager = leaves(case.ours(*case.inputs)), leaves(case.eager(*case.inputs))
    return all(torch.equal(one, other) for one, other in zip(ours, eager, strict=True))


def microseconds(run: Callable[..., Any], inputs: tuple[Tensor, ...], calls: int = CALLS_PER_GRAPH) -> float:
    """One call inside a replayed CUDA graph, the median of many; on a CPU, of a single call."""
    if not inputs[0].is_cuda:
        started = time.perf_counter()
        run(*inputs)
        return (time.perf_counter() - started) * 1e6
    graph = _captured(run, inputs, calls)
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def _captured(run: Callable[..., Any], inputs: tuple[Tensor, ...], calls: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run(*inputs)
    graph.replay()
    return graph


def measure(case: Case) -> Row:
    try:
        error, alone = error_of(case), is_the_same_alone(case)
        ours, eager = (microseconds(run, case.inputs, case.calls) for run in (case.ours, case.eager))
    except Exception:
        traceback.print_exc(limit=4)
        return Row(case.name, False, float("inf"), False, 0.0, 0.0, 0.0)
    rate = case.num_bytes / ours / 1e6
    passed = error <= case.tolerance and (alone or not case.same_alone)
    passed = passed and (not case.exactly or is_the_same_as_eager(case))
    times = (round(ours, 2), round(eager, 2), round(rate, 3), round(case.operations / ours / 1e6, 1))
    return Row(case.name, passed, error, alone, *times, case.layer, case.times)


CASES: tuple[Callable[[Bench], Iterator[Case]], ...] = (
    picture_cases,
    pair_cases,
    sum_cases,
    row_cases,
    quantised_cases,
    product_cases,
    convolution_cases,
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], help="float16 on a GPU")
    parser.add_argument("--only", default="", help="a part of the names of cases; all if not said")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    # Plain torch rounds between operations where a kernel does not; a rehearsal has no digits to lose.
    dtype = chosen.dtype or ("float32" if device.type == "cpu" else "float16")
    bench = Bench(device, getattr(torch, dtype))
    torch.manual_seed(0)
    rows: list[Row] = []
    print(f"{'':6}  {'':36} {'ours':>9} {'eager':>9} {'faster':>6} {'TB/s':>6} {'error':>8}  alone")
    with torch.inference_mode():
        for cases in CASES:
            for case in cases(bench):
                if chosen.only in case.name:
                    rows.append(measure(case))
                    show(rows[-1])
    show_fastest([row for row in rows if row.layer and row.passed])
    products = int8_products.measure(device, bench.dtype) if chosen.only in int8_products.NAME else None
    attentions = attention.measure(device, bench.dtype) if chosen.only in attention.NAME else None
    if chosen.out:
        found = {
            "environment": full_fingerprint().as_dict(),
            "dtype": dtype,
            "kernels": [asdict(row) for row in rows],
            "int8_products": products,
            "attention": attentions,
        }
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    tables = [each["passed"] for each in (products, attentions) if each is not None]
    raise SystemExit(not all([*tables, *(row.passed for row in rows)]))


def show(row: Row) -> None:
    faster = row.eager_us / row.ours_us if row.ours_us else 0.0
    print(
        f"{'ok' if row.passed else 'FAILED':6}  {row.name:36} {row.ours_us:7.1f}µs {row.eager_us:7.1f}µs"
        f" {faster:5.1f}× {row.terabytes_per_s:6.2f} {max(row.error, 0):8.1e}  {row.alone}"
        + (f"  {row.teraflops:.0f} TFLOP/s" if row.teraflops else ""),
        flush=True,
    )


def show_fastest(rows: list[Row]) -> None:
    """Of each layer, and all of them as often as an evaluation of SDXL has them."""
    fastest = {row.layer: row for row in sorted(rows, key=lambda row: -row.ours_us)}
    for layer in dict.fromkeys(row.layer for row in rows):
        row = fastest[layer]
        print(f"fastest {row.times:2}× {row.name}: {row.ours_us:.1f}µs, eager {row.eager_us:.1f}µs")
    if fastest:
        ours, eager = (
            sum(row.times * each for row in fastest.values() for each in [getattr(row, name)]) / 1e3
            for name in ("ours_us", "eager_us")
        )
        print(
            f"an evaluation's {sum(r.times for r in fastest.values())}: {ours:.2f} ms, eager {eager:.2f} ms"
        )


if __name__ == "__main__":
    main()
