"""Attention to prompts, by torch and by us: `python -m tests.gpu.kernels --only "attention to prompts"`.

The evaluations that are measured most: SDXL with eight pictures, SD 1.5 with sixteen, both with guidance, and
one picture of each; and prompts twice and three times as long. Prints one table: TB/s of what has to be read
and written, for each way at each shape, and what one evaluation's attention to its prompts would take. A way
that does not compile, is too far from fp32, or gives other numbers the second time or for a row alone is a
row that says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from calotype.engine.kernels.prompt_attention import Plan, plan_of
from tests.gpu import apart
from tests.gpu.attention import SHARPER, compare
from tests.gpu.timing import microseconds

NAME = "attention to prompts"
TOLERANCE = 1.0
"""In steps, as in `attention.py`. Of fewer keys less cancels: on a CPU rounding shares alone gives up to
0.46 in two rows of these."""
_HALF = 2
"""Bytes of a number."""


class Shape(NamedTuple):
    rows: int
    heads: int
    places: int
    channels: int
    tokens: int = 77

    @property
    def num_bytes(self) -> int:
        """Queries, results, keys and values, each once."""
        rows = 2 * self.places + 2 * self.tokens
        return _HALF * self.rows * self.heads * rows * self.channels

    def __str__(self) -> str:
        whole = f"{self.rows}×{self.heads}×{self.places}×{self.channels}"
        return whole if self.tokens == 77 else f"{whole}, {self.tokens}"


# How often an evaluation does each.
SDXL = {Shape(16, 20, 1024, 64): 60, Shape(16, 10, 4096, 64): 10}
SD15 = {Shape(32, 8, 4096, 40): 5, Shape(32, 8, 1024, 80): 5, Shape(32, 8, 256, 160): 5}
# One picture: few programs for a GPU's many multiprocessors.
ALONE = {Shape(2, 20, 1024, 64): 60, Shape(2, 8, 4096, 40): 5}
LONG = {Shape(16, 20, 1024, 64, 154): 60, Shape(16, 20, 1024, 64, 231): 60}
SHAPES = {**SDXL, **SD15, **ALONE, **LONG}
TOTALS = {"SDXL": SDXL, "SD 1.5": SD15}


class Way(NamedTuple):
    name: str
    plan: Plan | None = None
    backend: str = ""
    """By its name: torch's own is for one process."""


CANDIDATES = (
    Way("fetched ahead", Plan()),
    Way("not fetched ahead", Plan(stages=1)),
    Way("fetched ahead, 128 queries", Plan(queries=128, warps=8)),
    Way("a tile each", Plan(stages=1, walk=1)),
)
TORCH = (Way("torch's choice"), Way("torch's cuDNN", backend="CUDNN_ATTENTION"))
WAYS = (*TORCH, *CANDIDATES)


def measure(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Prints the table; returns the same as JSON takes it, and whether the plans in use were right."""
    rows: apart.Rows = {way.name: apart.Row() for way in WAYS}
    for ways in (TORCH, CANDIDATES):
        asked = [(way, shape) for way in ways for shape in SHAPES]
        apart.fill(rows, microseconds_of, asked, device, dtype)
    show(rows)
    return {
        "passed": not any(
            shape in rows[way.name].complaints
            for way in CANDIDATES
            for shape in SHAPES
            if way.plan == plan_of(shape.channels, shape.tokens)
        ),
        "ways": apart.as_json(rows, TOTALS),
    }


def microseconds_of(way: Way, shape: Shape, device: torch.device, dtype: torch.dtype) -> float:
    query, key, value = given(shape, device, dtype)

    def run(query: Tensor) -> Tensor:
        return attended(way, query, key, value)

    compare(run, query, key, value, TOLERANCE)
    if way.plan is not None:
        compare_alone(way, query, key, value)
    return microseconds(run, (query,))


def attended(way: Way, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if way.plan is not None:
        from calotype.engine.kernels import prompt_attention_triton

        return prompt_attention_triton.launch(query, key, value, way.plan)
    if not way.backend:
        return functional.scaled_dot_product_attention(query, key, value)
    with sdpa_kernel(getattr(SDPBackend, way.backend)):
        return functional.scaled_dot_product_attention(query, key, value)


def given(shape: Shape, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """As the forward pass has them: heads inside places, keys and values parts of one product."""
    rows, heads, places, channels, tokens = shape
    if device.type == "cpu":
        rows, places = min(rows, 2), places // 16  # a rehearsal
    torch.manual_seed(0)
    query = SHARPER * torch.randn(rows, places, heads, channels, device=device, dtype=dtype)
    joined = torch.randn(rows, tokens, 2, heads, channels, device=device, dtype=dtype)
    key, value = joined.permute(2, 0, 3, 1, 4).unbind()
    return query.transpose(1, 2), key, value


def compare_alone(way: Way, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises if a row alone is not what it is in a batch, to the bit."""
    whole = attended(way, query, key, value)
    alone = attended(way, *(each[-1:] for each in (query, key, value)))
    if not torch.equal(alone, whole[-1:]):
        raise ArithmeticError(f"{int((alone != whole[-1:]).sum())} numbers of a row are others alone")


def show(rows: apart.Rows) -> None:
    """TB/s by way and shape and milliseconds of an evaluation; the fastest way of each; complaints."""
    print(f"{NAME}: TB/s of what has to be moved, and ms of one evaluation's", flush=True)
    apart.show_table(rows, SHAPES, TOTALS, rate)


def rate(shape: Shape, microseconds: float) -> str:
    return f"{shape.num_bytes / microseconds / 1e6:.2f}"
