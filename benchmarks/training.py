"""Training speed on one GPU: SD 2-base beside the loop people write with diffusers and torch.compile; SDXL.

Every row in a process of its own, one after the other, on the same machine; random weights, synthetic data.

    PYTHONPATH=src:build/offline python3 benchmarks/training.py --out benchmarks/DATE-training

Writes one JSON file a row and table.md. A row that fails says so, and rows that are there are not run again.
`--fill` compiles a row beforehand into inductor's cache, and beside it one of `calotype train table
sd1-ablation`, which will find it there: the speeds are the same and the first steps are shorter.
benchmarks/training.sh runs both. On a host without network see scripts/offline-bundle first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CATALOGUE = Path("src/calotype/models/catalogue/sd2-base.json")
FAST = ("model.compile=true", "model.channels_last=true")
LATENTS = "data.kind=synthetic_latents"
ROW_LIMIT_S, FILL_LIMIT_S = 280, 420
BESIDE = {
    "ours-in-loop": ["model.compile=true"],
    "ours-sdxl-precomputed": ["model.compile=true", "model.cuda_graphs=true"],
}
"""Rows of the ablation that are compiled beside these: the memory of one GPU has room for both."""


def rows(micro: int, steps: int, warmup: int, also: Sequence[str] = ()) -> dict[str, list[str]]:
    """Command lines by name, ours first; `also` are settings of ours."""
    batch = (f"model.micro_batch_size={micro}", f"model.global_batch_size={micro}")
    window = (f"--benchmark-steps={steps}", f"--warmup-steps={warmup}", "--benchmark", "--json")
    ours = ["-m", "calotype", "train", "sd2-base", *batch, *FAST, *also, *window]
    plain = ["benchmarks/plain_training.py", str(CATALOGUE), f"--micro-batch={micro}"]
    plain += [f"--steps={steps}", f"--warmup-steps={warmup}"]
    sdxl = [
        "-m",
        "calotype",
        "train",
        "sdxl",
        *(f"model.{size}_batch_size=8" for size in ("micro", "global")),
    ]
    return {
        "ours-in-loop": ours,
        "plain-compile-in-loop": [*plain, "--compile"],
        "ours-sdxl-precomputed": [
            *sdxl,
            "model.gradient_checkpointing=false",
            *FAST,
            *also,
            *window,
            LATENTS,
        ],
        "ours-precomputed": [*ours, LATENTS],
        "plain-compile-precomputed": [*plain, "--compile", "--latents"],
        "plain-eager-in-loop": plain,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--micro-batch", type=int, default=64, help="of SD 2-base")
    parser.add_argument("--also", nargs="+", default=[], help="settings of ours, as optimizer.one_pass=true")
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--only", nargs="*", help="names of rows; all if not said")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no row later than this")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    made, started = rows(chosen.micro_batch, 20, 6, chosen.also), time.monotonic()
    for name in chosen.only or made:
        if is_there(chosen.out / f"{name}.json"):
            continue
        if time.monotonic() - started > chosen.limit_s:
            sys.exit(f"{name} and what follows it are left: {chosen.limit_s:.0f} s are over")
        if chosen.fill:
            fill(name, chosen.micro_batch, chosen.also)
        result = run(made[name])
        (chosen.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(name, summary(result), flush=True)
        (chosen.out / "table.md").write_text(table(chosen.out, list(made)))


def is_there(file: Path) -> bool:
    return file.is_file() and speed(json.loads(file.read_text())) is not None


def fill(name: str, micro: int, also: Sequence[str]) -> None:
    """Compile what a row will need, and a row of the ablation beside it."""
    commands = [rows(micro, 1, 1, also)[name]]
    if name in BESIDE:
        short = ("--benchmark", "--benchmark-steps=1", "--warmup-steps=1", "--json")
        commands.append(["-m", "calotype", "train", "bench-sd1", *BESIDE[name], *short])
    started = time.monotonic()
    with ThreadPoolExecutor() as threads:
        said = list(threads.map(lambda command: run(command, FILL_LIMIT_S), commands))
    print(f"{name} filled in {time.monotonic() - started:.0f} s:", *map(summary, said), flush=True)


def run(arguments: list[str], limit_s: float = ROW_LIMIT_S) -> dict[str, Any]:
    """What a row's process says of itself, or why it says nothing."""
    started = time.time()
    command = "python3 " + " ".join(arguments)
    try:
        done = subprocess.run(  # noqa: S603 - our own command lines
            [sys.executable, *arguments], capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"command": command, "error": f"took longer than {limit_s} s"}
    if done.returncode:
        return {"command": command, "error": done.stderr[-2000:]}
    said = json.loads(done.stdout[done.stdout.index("{") :])
    return {"command": command, "seconds_in_all": time.time() - started, **said}


def speed(result: dict[str, Any]) -> float | None:
    window = result.get("window") or result
    return window.get("samples_per_s")


def peak_gib(result: dict[str, Any]) -> float:
    memory = result["memory"][0] if "memory" in result else result
    return float(memory["allocated_bytes"]) / 2**30


def summary(result: dict[str, Any]) -> str:
    reached = speed(result)
    if reached is None:
        return "Error! " + str(result.get("error") or result.get("message"))[-300:]
    mfu = (result.get("window") or {}).get("mfu")
    return f"{reached:.1f} samples/s, {peak_gib(result):.1f} GiB" + (f", MFU {mfu:.1%}" if mfu else "")


def table(folder: Path, names: list[str]) -> str:
    """What there is so far, as Markdown."""
    lines = ["| row | samples/s | peak GiB | MFU | first step s |", "|---|---|---|---|---|"]
    for name in names:
        file = folder / f"{name}.json"
        if not file.is_file():
            continue
        result = json.loads(file.read_text())
        reached = speed(result)
        if reached is None:
            lines.append(f"| {name} | Error! | | | |")
            continue
        mfu = (result.get("window") or {}).get("mfu")
        first = result.get("first_step_s") or result["warmup_step_s"][0]
        shown = f"{mfu:.1%}" if mfu else ""
        lines.append(f"| {name} | {reached:.1f} | {peak_gib(result):.1f} | {shown} | {first:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
