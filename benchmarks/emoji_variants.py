"""What helps a small model: the recipes `emoji` and `emoji-vae` from nothing, one setting changed at a time.

    python benchmarks/emoji_variants.py DATA OUT --steps 1000 [--only recipe epsilon ...] [--together 3]

DATA is what `calotype data emoji` wrote. Every variant of `emoji` is trained for as many steps on the shipped
autoencoder, exported and judged by `calotype bench quality`; one of `emoji-vae` is judged by the last PSNR of
its training. All in processes of their own, several at once where the GPU has room: quality is compared, and
the times say nothing of speed. What is in OUT already is not done again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

VARIANTS: dict[str, list[str]] = {
    "recipe": [],
    "epsilon": ["objective.prediction_type=epsilon"],
    "no min-SNR": ["objective.snr_gamma=null"],
    "no captions dropped": ["objective.caption_dropout=0.0"],
    "constant rate": ["optimizer.schedule=constant"],
    "rate 2e-4": ["optimizer.learning_rate=2.0e-4"],
    "short average": ["ema.decay=0.99"],
    "no average": ["model.use_ema=false"],
}
AUTOENCODERS: dict[str, list[str]] = {
    "vae: recipe": [],
    "vae: l1 only": ["vae.gradient_weight=0", "vae.ssim_weight=0"],
    "vae: mse only": ["vae.reconstruction=mse", "vae.gradient_weight=0", "vae.ssim_weight=0"],
    "vae: usual kl": ["vae.kl_weight=1.0e-6"],
}
LAST_READINGS = 5
"""Of the training's PSNR: one is of 20 steps."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--together", type=int, default=1, help="so many at once")
    parser.add_argument("--also", nargs="+", default=[], help="settings of all, such as model.compile=false")
    every = [*VARIANTS, *AUTOENCODERS]
    parser.add_argument("--only", nargs="+", choices=every, default=every)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / "results.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name, found in in_turn([name for name in chosen.only if name not in done], chosen):
        done[name] = found
        file.write_text(json.dumps(done, indent=1) + "\n")
        print(row(name, found), flush=True)


def in_turn(names: list[str], chosen: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with what was found, as they end; what fails is said and costs nobody else anything."""
    with ThreadPoolExecutor(chosen.together) as room:
        waiting = {room.submit(judged, name, chosen): name for name in names}
        for ended in as_completed(waiting):
            try:
                yield waiting[ended], ended.result()
            except subprocess.CalledProcessError as error:
                print(f"{waiting[ended]}: failed: {error}", flush=True)


def judged(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Train; export and judge."""
    place = chosen.out / name.replace(": ", "-").replace(" ", "-")
    own = AUTOENCODERS[name] if name in AUTOENCODERS else VARIANTS[name]
    settings = [
        f"name={place.name}",
        f"checkpoint.folder={place}/run",
        f"data.path={chosen.data}/train",
        f"validation.data.path={chosen.data}/heldout",
        f"trainer.max_steps={chosen.steps}",
        f"validation.every_steps={chosen.steps}",
        f"checkpoint.every_steps={chosen.steps}",
        "logging.sample_every_steps=0",
        *chosen.also,
        *own,
    ]
    if name not in AUTOENCODERS:
        settings.append(f"model.vae={files('calotype') / 'assets' / 'emoji' / 'vae'}")
    began = time.monotonic()
    calotype("train", "emoji-vae" if name in AUTOENCODERS else "emoji", *settings)
    found = {"settings": [*chosen.also, *own], "steps": chosen.steps, "trained_s": time.monotonic() - began}
    if name in AUTOENCODERS:
        return {**found, "psnr": last_psnr(place / "run" / "metrics.jsonl")}
    if not (place / "model").exists():
        calotype("train", "export", "emoji", str(place / "model"), *settings)
    asked = ["--data", str(chosen.data), "--out", str(place / "quality"), "--cfg", "4"]
    asked += ["--count", str(chosen.count), "--batch-size", "250"]
    calotype("bench", "quality", str(place / "model"), *asked)
    return {**found, "parts": json.loads((place / "quality" / "results.json").read_text())["parts"]}


def calotype(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "calotype", *words], check=True)  # noqa: S603 - our own module


def last_psnr(metrics: Path) -> float:
    readings = [json.loads(line).get("psnr") for line in metrics.read_text().splitlines()]
    return fmean([value for value in readings if value is not None][-LAST_READINGS:])


def row(name: str, found: dict[str, Any]) -> str:
    took = f"({found['steps']} steps in {found['trained_s']:.0f} s)"
    if "psnr" in found:
        return f"{name}: {found['psnr']:.1f} dB {took}"
    shares = [
        f"{part}: emoji {about['all']['emoji_top1']:.1%}, style {about['all']['style']:.1%}"
        for part, about in found["parts"].items()
    ]
    return f"{name}: {'; '.join(shares)} {took}"


if __name__ == "__main__":
    main()
