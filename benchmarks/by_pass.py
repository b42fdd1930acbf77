"""Where an evaluation's time goes with `fast` put together one pass after the other: a GPU, random weights.

    PYTHONPATH=src:build/offline python3 benchmarks/by_pass.py --out benchmarks/DATE-by-pass

Writes results.json after every row and prints a table: milliseconds of an evaluation by kind of kernel, of
all kernels, and between two events, which has the device's waiting for the host in it. Rows that are there
are not run again. `--device cpu` tries it on shrunk models, and measures nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inference import Work, fill

from calotype.bench.profile.classify import device_kind
from calotype.engine.presets import CUSTOM_PREFIX, pass_names
from calotype.spec.records.profile import GROUPS

KINDS = GROUPS[:-1]
"""Gaps are what an evaluation takes longer than its kernels."""
WORK = (("sd15", 512, 16), ("sdxl", 1024, 1))
"""Model, side and batch: one that is limited by memory, and one with many small kernels."""


def lists(device: str) -> Iterator[tuple[str, str]]:
    """Presets, each with what it has more than the one before; as one graph as soon as that is possible."""
    yield "diffusers' forward pass", "baseline"
    own, *others = [name for name in pass_names("fast", "cuda") if not name.endswith("graph")]
    graphs = [name for name in pass_names("fast", "cuda") if name.endswith("graph")]
    here = pass_names("fast", device)
    yield own, f"{CUSTOM_PREFIX}{own}"
    for count in range(len(others) + 1):
        names = [name for name in [own, *others[:count], *graphs] if name in here]
        yield others[count - 1] if count else " and ".join(graphs), f"{CUSTOM_PREFIX}{'+'.join(names)}"


def line(label: str, figures: Mapping[str, Any]) -> str:
    kinds: Counter[str] = Counter()
    for kernel, milliseconds in figures["kernels"].items():
        kinds[device_kind(kernel).group] += milliseconds
    cells = [*(kinds[kind] for kind in KINDS), figures["kernels_ms"], figures["evaluation_ms"]]
    return f"| {label} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no row after so long")
    chosen = parser.parse_args()
    named = [
        (f"{model}, batch {batch}: {label}" if preset == "baseline" else f"+ {label}", work)
        for model, side, batch in WORK
        for label, preset in lists(chosen.device)
        for work in [Work(model, side, batch, 20, preset, 1)]
    ]
    rows = fill(chosen.out / "results.json", [work for _, work in named], chosen.device, chosen.limit_s)
    print("| | " + " | ".join(KINDS) + " | all kernels | evaluation |")
    print("|---" * (len(KINDS) + 3) + "|")
    for label, work in named:
        if "kernels" in rows.get(work.name, {}):
            print(line(label, rows[work.name]))


if __name__ == "__main__":
    main()
