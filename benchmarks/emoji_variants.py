"""What helps a small model: the recipe `emoji` from nothing, with one setting changed at a time, judged alike.

    python benchmarks/emoji_variants.py DATA OUT --steps 1000 [--only recipe epsilon ...] [--count 250]

DATA is what `calotype data emoji` wrote. Every variant is trained for as many steps on the shipped
autoencoder, exported and judged by `calotype bench quality`, in processes of their own; what is in
OUT/results.json already is not done again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

VARIANTS: dict[str, list[str]] = {
    "recipe": [],
    "epsilon": ["objective.prediction_type=epsilon"],
    "no min-SNR": ["objective.snr_gamma=null"],
    "no captions dropped": ["objective.caption_dropout=0.0"],
    "constant rate": ["optimizer.schedule=constant"],
    "rate 3e-4": ["optimizer.learning_rate=3.0e-4"],
    "short average": ["ema.decay=0.99"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / "results.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in chosen.only:
        if name in done:
            continue
        done[name] = judged(name, chosen)
        file.write_text(json.dumps(done, indent=1) + "\n")
        print(row(name, done[name]), flush=True)


def judged(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Train, export, judge."""
    place = chosen.out / name.replace(" ", "-")
    settings = [
        f"name={place.name}",
        f"checkpoint.folder={place}/run",
        f"model.vae={files('calotype') / 'assets' / 'emoji' / 'vae'}",
        f"data.path={chosen.data}/train",
        f"validation.data.path={chosen.data}/heldout",
        f"trainer.max_steps={chosen.steps}",
        f"validation.every_steps={chosen.steps}",
        f"checkpoint.every_steps={chosen.steps}",
        "logging.sample_every_steps=0",
        *VARIANTS[name],
    ]
    began = time.monotonic()
    calotype("train", "emoji", *settings)
    trained_s = time.monotonic() - began
    calotype("train", "export", "emoji", str(place / "model"), *settings)
    asked = ["--data", str(chosen.data), "--out", str(place / "quality"), "--cfg", "4"]
    asked += ["--count", str(chosen.count), "--batch-size", "250"]
    calotype("bench", "quality", str(place / "model"), *asked)
    found = json.loads((place / "quality" / "results.json").read_text())
    return {
        "settings": VARIANTS[name],
        "steps": chosen.steps,
        "trained_s": trained_s,
        "parts": found["parts"],
    }


def calotype(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "calotype", *words], check=True)


def row(name: str, found: dict[str, Any]) -> str:
    shares = [
        f"{part}: emoji {about['all']['emoji_top1']:.1%}, style {about['all']['style']:.1%}"
        for part, about in found["parts"].items()
    ]
    return f"{name}: {'; '.join(shares)} ({found['steps']} steps in {found['trained_s']:.0f} s)"


if __name__ == "__main__":
    main()
