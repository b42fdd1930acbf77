"""The kernels on a GPU, run by hand on one: `python -m tests.gpu.kernels --out kernels.json`.

Every kernel at the shapes of SD 1.5 and SDXL: against torch in fp32, alone against in a batch, and its time
inside a CUDA graph beside torch eager's. Prints a row for each and ends with 1 if one was wrong. With
`--device cpu` the shapes are small and the numbers mean nothing: a rehearsal of this room. Not collected by
pytest: the machines that run the tests have no GPU.

`pictures.py`, `tokens.py` and `fp8_convolutions.py` have the cases; `int8_products.py` and `attention.py` are
tables of their own. `--only` takes a part of a name.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calotype.engine.kernels.quantize import LARGEST, Quantized
from calotype.engine.torch_info import full_fingerprint
from tests.gpu import attention, fp8_convolutions, int8_products, pictures, tokens
from tests.gpu.cases import Bench, Case
from tests.gpu.timing import microseconds


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


def leaves(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def error_of(case: Case) -> float:
    """Of the first result, beyond what its dtype's rounding explains."""
    found = case.ours(*case.inputs)
    wanted = leaves((case.reference or case.eager)(*(each.float() for each in case.inputs)))[0]
    if isinstance(found, Quantized):
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
    pictures.picture_cases,
    pictures.pair_cases,
    pictures.sum_cases,
    tokens.row_cases,
    tokens.gradient_cases,
    tokens.quantised_cases,
    tokens.product_cases,
    fp8_convolutions.convolution_cases,
)
TABLES: dict[str, Any] = {"int8_products": int8_products, "attention": attention}


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
    tables = {
        name: table.measure(device, bench.dtype)
        for name, table in TABLES.items()
        if chosen.only in table.NAME
    }
    if chosen.out:
        found = {
            "environment": full_fingerprint().as_dict(),
            "dtype": dtype,
            "kernels": [asdict(row) for row in rows],
            **{name: tables.get(name) for name in TABLES},
        }
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(not all([*(each["passed"] for each in tables.values()), *(row.passed for row in rows)]))


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
