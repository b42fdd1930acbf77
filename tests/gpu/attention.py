"""Attention of places to each other, by torch and by us: `python -m tests.gpu.kernels --only "attention"`.

The evaluations that are measured most: SDXL with eight pictures, SD 1.5 with sixteen, both with guidance.
Prints one table: TFLOP/s of real work of each way at each shape, and what one evaluation's attention would
take. A way that does not compile, is too far from fp32 or gives other numbers the second time is a row that
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from calotype.engine.kernels.attention import PLANS, Plan
from tests.gpu import apart
from tests.gpu.timing import microseconds

NAME = "attention of places"
RUNS_TO_COMPARE = 3
TOLERANCE = 0.5
"""In steps of the dtype's numbers around one, beyond the rounding of the result: shares are rounded to half a
step of themselves, most of which cancels. On a CPU that alone gives a sixth of a step at these numbers."""
FP32 = 1e-5
"""So much more for what sums in fp32 round, the reference's too."""
SHARPER = 2.0
"""So much further apart than of chance are scores, as they are in a network: some keys matter."""


class Shape(NamedTuple):
    rows: int
    heads: int
    places: int
    channels: int

    @property
    def operations(self) -> int:
        return 4 * self.rows * self.heads * self.places**2 * self.channels

    def __str__(self) -> str:
        return f"{self.rows}×{self.heads}×{self.places}×{self.channels}"


# How often an evaluation does each.
SDXL = {Shape(16, 10, 4096, 64): 10, Shape(16, 20, 1024, 64): 60}
SD15 = {Shape(32, 8, 4096, 40): 5}
# One picture: fewer programs than a GPU has room for.
ALONE = {Shape(2, 10, 4096, 64): 10, Shape(2, 8, 4096, 40): 5}
SHAPES = {**SDXL, **SD15, **ALONE}
TOTALS = {"SDXL": SDXL, "SD 1.5": SD15}


class Way(NamedTuple):
    name: str
    plan: Plan | None = None
    backend: str = ""
    """By its name: torch's own is for one process."""


CANDIDATES = (
    Way("two teams", Plan()),
    Way("three teams", Plan(teams=3)),
    Way("three teams, split", Plan(teams=3, split=True)),
    Way("three teams in turns", Plan(teams=3, turns=True)),
    Way("three teams in turns, split", Plan(teams=3, turns=True, split=True)),
)
TORCH = (
    Way("torch's choice"),
    Way("torch's cuDNN", backend="CUDNN_ATTENTION"),
    Way("torch's flash", backend="FLASH_ATTENTION"),
)
WAYS = (*TORCH, *CANDIDATES)


def measure(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Prints the table; returns the same as JSON takes it, and whether the plans in use were right."""
    rows: apart.Rows = {way.name: apart.Row() for way in WAYS}
    in_turns = [way for way in CANDIDATES if way.plan and way.plan.turns]
    freely = [way for way in CANDIDATES if way not in in_turns]
    for ways in (TORCH, freely, in_turns):
        asked = [(way, shape) for way in ways for shape in SHAPES if applies(way, shape)]
        apart.fill(rows, microseconds_of, asked, device, dtype)
    show(rows)
    return {
        "passed": not any(
            shape in rows[way.name].complaints
            for way in CANDIDATES
            for shape in SHAPES
            if way.plan == PLANS[shape.channels]
        ),
        "ways": apart.as_json(rows, TOTALS),
    }


def applies(way: Way, shape: Shape) -> bool:
    """Whether it is another way at this shape: heads of 64 are not split."""
    return way.plan is None or not way.plan.split or way.plan.columns(shape.channels)[1] > 0


def microseconds_of(way: Way, shape: Shape, device: torch.device, dtype: torch.dtype) -> float:
    query, key, value = given(shape, device, dtype)

    def run(query: Tensor) -> Tensor:
        if way.plan is not None:
            from calotype.engine.kernels import attention_hopper

            return attention_hopper.launch(query, key, value, way.plan)
        if not way.backend:
            return functional.scaled_dot_product_attention(query, key, value)
        with sdpa_kernel(getattr(SDPBackend, way.backend)):
            return functional.scaled_dot_product_attention(query, key, value)

    compare(run, query, key, value)
    return microseconds(run, (query,))


def given(shape: Shape, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """As the forward pass has them: parts of one product, heads inside places."""
    rows, heads, places, channels = shape
    if device.type == "cpu":
        rows, places = 1, places // 16  # a rehearsal
    torch.manual_seed(0)
    joined = torch.randn(rows, places, 3, heads, channels, device=device, dtype=dtype)
    joined[:, :, 0] *= SHARPER
    query, key, value = joined.permute(2, 0, 3, 1, 4).unbind()
    return query, key, value


def compare(run: Callable[[Tensor], Tensor], query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises if a way is further from fp32 than `TOLERANCE`, or not the same to the bit every time."""
    first = run(query)
    away = max(_away(*each) for each in zip(first, query, key, value, strict=True))
    allowed = TOLERANCE * torch.finfo(first.dtype).eps + FP32
    if not away <= allowed:
        raise ArithmeticError(f"{away:.1e} from fp32, beyond {allowed:.1e}")
    for _ in range(RUNS_TO_COMPARE):
        # What is not written stays what the memory held, most likely this.
        spoilt = torch.full_like(first, torch.nan)
        del spoilt
        again = run(query)
        if not torch.equal(again, first):
            raise ArithmeticError(f"{int((again != first).sum())} of {first.numel()} numbers are others")


def _away(found: Tensor, query: Tensor, key: Tensor, value: Tensor) -> float:
    """Of one row of a batch; in fp32 by plain products, whose scores are written out."""
    step = torch.finfo(found.dtype).eps / 2
    scores = query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5
    wanted = scores.softmax(-1) @ value.float()
    return float(((found.float() - wanted).abs() - step * wanted.abs()).max())


def show(rows: apart.Rows) -> None:
    """TFLOP/s by way and shape and milliseconds of an evaluation; the fastest way of each; complaints."""
    print(f"{NAME}: TFLOP/s of real work, and ms of one evaluation's attention", flush=True)
    apart.show_table(rows, SHAPES, TOTALS, rate)


def rate(shape: Shape, microseconds: float) -> str:
    return f"{shape.operations / microseconds / 1e6:.0f}"
