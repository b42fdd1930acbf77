"""SDXL's products in eight bits, by several plans: `python -m tests.gpu.kernels --only "int8 products"`.

With guidance. Prints a table for eight pictures and one for a single one: the speed of each way at each
shape, and what one evaluation would take with it. A way that does not compile or gives other numbers is a row
that says so. Ways run in processes of their own: a kernel that waits for itself for ever is given up with its
process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.int8_matmul import plain, planned
from calotype.engine.kernels.int8_tile_config import SQUARE, Plan
from calotype.engine.kernels.quantize import Quantized
from calotype.engine.kernels.quantize import plain as quantised
from calotype.models import catalogue
from tests.gpu import apart
from tests.gpu.timing import microseconds

NAME = "int8 products of SDXL"
PICTURES = (8, 1)
RUNS_TO_COMPARE = 3
TOLERANCE = 2e-4


class Shape(NamedTuple):
    rows: int
    depth: int
    width: int
    bias: bool

    @property
    def operations(self) -> int:
        return 2 * self.rows * self.depth * self.width

    def __str__(self) -> str:
        return f"{self.rows // 1024}K×{self.depth}→{self.width}"


class Way(NamedTuple):
    name: str
    plan: Plan | None = None


HALF = Way("half precision")
TILE = Way("a tile a program")
CANDIDATES = (
    Way("a team, wide", Plan(128, 256, 128, stages=4, teams=1)),
    Way("a team, tall", Plan(256, 128, 128, stages=4, teams=1)),
    Way("two teams, square", SQUARE),
    Way("two teams, wide", Plan(64, 256, 128, stages=4)),
)
WAYS = (HALF, TILE, *CANDIDATES)


def products(pictures: int) -> Counter[Shape]:
    """The products of one guided evaluation that `int8` does in eight bits, and how often it does each."""
    unet = catalogue.architecture("sdxl").unet
    counts: Counter[Shape] = Counter()
    for level, width in enumerate(unet["block_out_channels"]):
        rows = 2 * pictures * (unet["sample_size"] // 2**level) ** 2
        layers = _layers_at(unet, level)
        if not layers:
            continue
        # Of a layer: queries, keys and values of attention to itself; its output, queries to the prompt
        # (keys and values are kept from the first step) and the output of that; into the gate; out of it.
        for depth, wide, times in ((1, 3, 1), (1, 1, 3), (1, 8, 1), (4, 1, 1)):
            counts[Shape(rows, depth * width, wide * width, bias=wide == 8)] += times * layers
    return counts


def _layers_at(unet: Mapping[str, Any], level: int) -> int:
    """Of transformers on the way down, in the middle and on the way up, where a block has one more."""
    last = len(unet["block_out_channels"]) - 1
    down = "CrossAttn" in unet["down_block_types"][level]
    up = "CrossAttn" in unet["up_block_types"][last - level]
    blocks = unet["layers_per_block"] * down + (unet["layers_per_block"] + 1) * up + (level == last)
    return blocks * unet["transformer_layers_per_block"][level]


def measure(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Prints the tables; returns the same as JSON takes it, and whether the kernels in use were right."""
    tables = [_table(pictures, device, dtype) for pictures in PICTURES]
    return {"passed": all(table["passed"] for table in tables), "tables": tables}


def _table(pictures: int, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    counts = products(pictures)
    rows: apart.Rows = {way.name: apart.Row() for way in WAYS}
    for teams in (0, 1, 2):
        ways = [way for way in WAYS if (way.plan.teams if way.plan else 0) == teams]
        apart.fill(rows, _microseconds, [(way, shape) for way in ways for shape in counts], device, dtype)
    show(rows, counts, pictures)
    in_use = [way.name for way in WAYS if way == TILE or way.plan == SQUARE]
    return {
        "pictures": pictures,
        "passed": not any(rows[name].complaints for name in in_use),
        "counts": {str(shape): count for shape, count in counts.items()},
        "ways": {
            name: {**row.as_dict(), "milliseconds": row.milliseconds(counts)} for name, row in rows.items()
        },
    }


def _microseconds(way: Way, shape: Shape, device: torch.device, dtype: torch.dtype) -> float:
    rows, depth, width = shape[:3]
    if device.type == "cpu":
        rows, depth, width = 300, depth // 8, width // 8  # a rehearsal
    torch.manual_seed(0)
    x = torch.randn(rows, depth, device=device, dtype=dtype)
    weight = torch.randn(width, depth, device=device, dtype=dtype)
    bias = torch.randn(width, device=device, dtype=dtype) if shape.bias else None
    if way == HALF:
        return microseconds(lambda x: functional.linear(x, weight, bias), (x,))
    given, factors = quantised(x, "int8"), quantised(weight, "int8")

    def run(values: Tensor) -> Tensor:
        return planned(Quantized(values, given.scale), factors, bias, dtype, way.plan)

    _compare(run, given, factors, bias, dtype)
    return microseconds(run, (given.values,))


def _compare(
    run: Callable[[Tensor], Tensor], x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype
) -> None:
    """Raises if a way is not that of one tile to the bit, every time, or that is not torch's product."""
    wanted = planned(x, weight, bias, dtype, TILE.plan)
    exact = plain(x, weight, bias, dtype).float()
    away = (wanted.float() - exact).abs() - torch.finfo(dtype).eps * exact.abs()
    if float(away.max()) > TOLERANCE:
        raise ArithmeticError(f"a tile a program is {float(away.max()):.1e} from torch's product")
    for _ in range(RUNS_TO_COMPARE):
        # What is not written stays what the memory held, most likely this.
        spoilt = torch.full_like(wanted, torch.nan)
        del spoilt
        found = run(x.values)
        if not torch.equal(found, wanted):
            wrong = int((found != wanted).sum())
            raise ArithmeticError(f"{wrong} of {wanted.numel()} numbers are others")


def show(rows: apart.Rows, counts: Mapping[Shape, int], pictures: int) -> None:
    """TOP/s by way and shape and milliseconds of an evaluation; the fastest way of each shape; complaints."""
    print(f"{NAME}, pictures: {pictures}; TOP/s, and ms of one evaluation's products", flush=True)
    print(
        f"{'':22}" + "".join(f"{f'{count}× {shape}':>21}" for shape, count in counts.items()) + f"{'ms':>9}"
    )
    for name, row in rows.items():
        cells = "".join(f"{_cell(row, shape):>21}" for shape in counts)
        total = row.milliseconds(counts)
        print(f"{name:22}{cells}{'' if total is None else f'{total:.2f}':>9}")
    print(f"{'fastest of int8':22}" + "".join(f"{_fastest(rows, shape):>21}" for shape in counts), end="")
    best = [min(_times(rows, shape).values(), default=torch.nan) for shape in counts]
    print(f"{sum(count * time for count, time in zip(counts.values(), best, strict=True)) / 1e3:9.2f}")
    apart.show_complaints(rows)


def _cell(row: apart.Row, shape: Shape) -> str:
    if shape not in row.times:
        return "failed"
    return f"{shape.operations / row.times[shape] / 1e6:.0f}"


def _fastest(rows: apart.Rows, shape: Shape) -> str:
    times = _times(rows, shape)
    return min(times, key=times.__getitem__, default="none")


def _times(rows: apart.Rows, shape: Shape) -> dict[str, float]:
    return {name: row.times[shape] for name, row in rows.items() if name != HALF.name and shape in row.times}
