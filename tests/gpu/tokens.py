"""Kernels that read rows of tokens: norms, gates, all that is in eight bits. Knows nothing of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.geglu import geglu, geglu_quantized
from calotype.engine.kernels.geglu_backward import geglu_backward
from calotype.engine.kernels.int8_matmul import int8_matmul
from calotype.engine.kernels.int8_matmul import plain as plain_product
from calotype.engine.kernels.layer_norm import add_layer_norm, layer_norm, layer_norm_quantized
from calotype.engine.kernels.quantize import Kind, Quantized, plain, quantize_rows
from tests.gpu.cases import EPS, Bench, Case, size

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
# (width, side, batch size) of transformers in training
TRAINED = [(320, 64, 96), (640, 32, 96), (1280, 16, 96)]
KINDS: tuple[Kind, ...] = ("int8", "fp8")


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


def gradient_cases(bench: Bench) -> Iterator[Case]:
    """What torch does in two passes; a bias's gradient is a mean here, which has the size of one number."""
    for width, side, n in TRAINED:
        gradient, projected = bench.rows(n, side, 4 * width), bench.rows(n, side, 8 * width)
        bias = bench.numbers(8 * width)

        def ours(gradient: Tensor, projected: Tensor, bias: Tensor = bias) -> tuple[Tensor, Tensor]:
            found, summed = geglu_backward(gradient, projected, bias)
            return found, summed / (found.numel() // summed.numel())

        def eager(gradient: Tensor, projected: Tensor, bias: Tensor = bias) -> tuple[Tensor, Tensor]:
            value, gate = (projected + bias.to(projected)).chunk(2, -1)
            parts = [gradient * functional.gelu(gate), torch.ops.aten.gelu_backward(gradient * value, gate)]
            both = torch.cat(parts, -1)
            return both, both.flatten(0, -2).mean(0)

        name, inputs = f"{n}×{side}²×{8 * width}", (gradient, projected)
        least = size(gradient) + 2 * size(projected)
        yield Case(f"gate's gradient {name}", inputs, _nth(0, ours), _nth(0, eager), least)
        yield Case(
            f"gate's gradient, bias {name}", inputs, _nth(1, ours), _nth(1, eager), least, same_alone=False
        )


def _nth(which: int, run: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Tensor]:
    return lambda *inputs: run(*inputs)[which]


def quantised_cases(bench: Bench) -> Iterator[Case]:
    for width, side, n in ((320, 64, 2), (640, 64, 32), (1280, 32, 32)):
        weight, bias = bench.parameters(width)
        x, wide = bench.rows(n, side, width), bench.rows(n, side, 8 * width)
        for kind in KINDS:

            def rows(x: Tensor, kind: Kind = kind) -> Quantized:
                return quantize_rows(x, kind)

            def norm(x: Tensor, w: Tensor = weight, b: Tensor = bias, kind: Kind = kind) -> Quantized:
                return layer_norm_quantized(x, w, b, EPS, kind)

            def gate(x: Tensor, kind: Kind = kind) -> Quantized:
                return geglu_quantized(x, kind)

            def exact_norm(x: Tensor, w: Tensor = weight, b: Tensor = bias) -> Tensor:
                return functional.layer_norm(x, x.shape[-1:], w.to(x), b.to(x), EPS)

            def eager_rows(x: Tensor, kind: Kind = kind) -> Quantized:
                return plain(x, kind)

            def eager_norm(
                x: Tensor, exact: Callable[..., Tensor] = exact_norm, kind: Kind = kind
            ) -> Quantized:
                return plain(exact(x), kind)

            def eager_gate(x: Tensor, kind: Kind = kind) -> Quantized:
                return plain(eager_geglu(x), kind)

            shape = f"{kind} {n}×{side}²×{width}"
            count = x.numel()
            yield Case(f"rows in {shape}", (x,), rows, eager_rows, size(x) + count, lambda x: x)
            yield Case(f"layer norm in {shape}", (x,), norm, eager_norm, size(x) + count, exact_norm)
            yield Case(f"gate in {shape}", (wide,), gate, eager_gate, size(wide) + 4 * count, eager_geglu)


def product_cases(bench: Bench) -> Iterator[Case]:
    """Beside torch's own product of whole numbers, with the scaling after it."""
    for width, wide, side, n in PRODUCTS:
        weight = quantize_rows(bench.numbers(wide, width) / width**0.5, "int8")
        name = f"int8 product {n}×{side}²×{width}→{wide}"
        yield _product(name, bench.rows(n, side, width), weight, bench.numbers(wide))


def _product(name: str, x: Tensor, weight: Quantized, bias: Tensor) -> Case:
    def ours(x: Tensor, multiply: Callable[..., Tensor] = int8_matmul) -> Tensor:
        rows = quantize_rows(x.flatten(0, -2), "int8")
        return multiply(rows, weight, bias, bias.dtype).unflatten(0, x.shape[:-1])

    def exact(x: Tensor) -> Tensor:
        numbers, factors = (each.values.float() * each.scale for each in (quantize_rows(x, "int8"), weight))
        return functional.linear(numbers, factors, bias.float())

    num_bytes = size(x, weight.values) + size(bias) * x.numel() // x.shape[-1]
    return Case(name, (x,), ours, partial(ours, multiply=plain_product), num_bytes, exact)
