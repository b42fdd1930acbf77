"""A scaling study of this machine's processor cores, and the published points beside the same model.

    PYTHONPATH=src python3 benchmarks/scaling.py --out benchmarks/DATE-scaling

Trains the embedded model on one and two ranks (gloo, a thread each), weak and strong, several rounds over all
points; every point in processes of its own. Writes what was measured, the study, its report page with the
plots, and README.md, which says how loaded the machine was before. Nothing here measures a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

RECIPE = "bench-sd1"
CHANGES = (
    *("model.base=emoji", "model.precision=fp32", "model.channels_last=false", "model.resolution=128"),
    *("model.micro_batch_size=2", "model.global_batch_size=4"),
    *("data.kind=synthetic_latents", "data.num_workers=0"),
)
# Ranks of one machine: no other number of nodes is asked about.
WINDOW = ("--devices=1,2", "--device=cpu", "--nodes=1", "--gpus-per-node=2")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}


def calotype(*words: str) -> None:
    surroundings = {**os.environ, **ONE_THREAD}
    subprocess.run([sys.executable, "-m", "calotype", *words], env=surroundings, check=True)  # noqa: S603


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--units", type=int, default=10, help="steps by the clock, of a point and round")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    load, out = os.getloadavg()[0], chosen.out
    how = ["bench", "scale", RECIPE, *CHANGES, *WINDOW, f"--units={chosen.units}", "--warmup=2"]
    with tempfile.TemporaryDirectory() as place:
        calotype(*how, f"--rounds={chosen.rounds}", f"--out={place}")
        out.mkdir(parents=True, exist_ok=True)
        for name in ("records.jsonl", "scaling.json"):
            shutil.copy(Path(place, name), out / name)
    shutil.rmtree(out / "figures", ignore_errors=True)
    calotype("report", str(out), f"--out={out}", "--title=How training scales")
    study = json.loads((out / "scaling.json").read_text(encoding="utf-8"))
    records = [json.loads(line) for line in (out / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    (out / "README.md").write_text(readme(study, records, load, how, chosen.rounds), encoding="utf-8")


def readme(
    study: dict[str, Any], records: list[dict[str, Any]], load: float, how: list[str], rounds: int
) -> str:
    """What was done, on what, and what it says."""
    machine = records[0]["fingerprint"]["machine"]
    rows = [
        f"| {one['mode']} | {one['nodes'] * one['gpus_per_node']} | {one['samples_per_gpu']} "
        f"| {one['samples_per_s']:.2f} | {one['efficiency']:.1%} |"
        for one in study["measured"]
    ]
    fits = [(fit, chart_end(fit)) for fit in study["published"]]
    told = []
    for fit, end in fits:
        what, off = "fitted" if end["fitted"] else "predicted", end["by_model"] / end["samples_per_s"] - 1
        name = fit["about"].removeprefix("published, ")
        told.append(f"| {name} | {fit['error']:.1%} | {end['by_model']:.0f} ({what}) | {off:+.1%} |")
    end = fits[0][1]
    most = end["nodes"] * end["gpus_per_node"]
    return f"""# How training scales: the tool on two processor cores, and its model on published points

{date.today()}. `PYTHONPATH=src python3 benchmarks/scaling.py --out benchmarks/DATE-scaling` makes all of it
anew; it runs

    calotype {" ".join(how)} --rounds={rounds} --out OUT
    calotype report OUT --out OUT

on a {study["device"]}, {os.cpu_count()} cores; {software(machine)}.
Load of the machine in the minute before: {load:.1f}.

**What was measured here are CPU ranks, not GPUs**: the embedded model (19.5 M parameters, 128², fp32, made-up
latents), one gloo rank a core with one thread each. It shows that the tool works from the clock to the page.
The two ranks share a socket's caches and memory; {quiet(load)}.
Nothing about GPUs follows from these numbers, and nothing beyond two ranks is predicted from them.

| scaling | ranks | samples a rank | samples/s | efficiency |
|---|---|---|---|---|
{chr(10).join(rows)}

**Reference: published points**, MosaicML's SD 2-base on 1 to 64 nodes of 8 H100, beside the same model of a
step. A row is a fit on so many nodes; the last two columns are what it says of {most} GPUs,
{end["nodes"]} × {end["gpus_per_node"]}, where {end["samples_per_s"]:.0f} images/s are published.

| fitted on | off its points (root mean square) | images/s there, by the model | off |
|---|---|---|---|
{chr(10).join(told)}

What is called a prediction was measured by nobody. From two nodes little can be told; from eight, that far.
Why, and what the plateau between 256 and 384 GPUs is: [docs/scaling.md](../../docs/scaling.md).

![published points and predictions](figures/scaling-published.svg)
![measured here](figures/scaling-study-1.svg)

`records.jsonl` has every step, `scaling.json` the study; [report.html](report.html) and
[report.md](report.md) are the page.
"""


def quiet(load: float) -> str:
    if load < 0.5:
        return "nobody else used them"
    return "others used them at the same time,\nso the efficiencies are an example and no more"


def chart_end(fit: dict[str, Any]) -> dict[str, Any]:
    """The point of the most GPUs."""
    return max(fit["points"], key=lambda one: one["nodes"] * one["gpus_per_node"])


def software(machine: dict[str, Any]) -> str:
    names = ("torch", "diffusers")
    return ", ".join(
        [f"Python {machine['python']}", *(f"{name} {machine['packages'][name]}" for name in names)]
    )


if __name__ == "__main__":
    main()
