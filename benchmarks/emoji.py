"""Gathers what training and measuring the embedded model left behind into one small folder to commit.

    python benchmarks/emoji.py ./quality ./runs benchmarks/DATE-emoji --about "One H200, …"

`./quality` is what `calotype bench quality` wrote, `./runs` holds the runs `emoji-vae` and `emoji`. Writes
the record as it is, sheets and samples as WebP, the curves with about 300 lines each at most, and a
README.md. Measures nothing, and refuses a record that names folders of somebody's machine.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from PIL import Image

RUNS = ("emoji-vae", "emoji")
MOST_LINES = 300
WEBP_QUALITY = 80
ROWS_SHOWN = 10
_SOMEBODYS_FOLDER = re.compile(r'"[^"]*/(tmp|home|root|Users|work|mnt)/[^"]*"')


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("quality", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--about", required=True, help="machine, time and what else the figures do not say")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = (chosen.quality / "results.json").read_text()
    if found := _SOMEBODYS_FOLDER.search(text):
        raise SystemExit(
            f"results.json names a folder of this machine: {found[0]}; measure by a relative path"
        )
    (chosen.out / "results.json").write_text(text)
    for sheet in sorted(chosen.quality.glob("*.png")):
        as_webp(sheet, chosen.out / f"{sheet.stem}.webp")
    summary = (chosen.quality / "README.md").read_text().replace(".png)", ".webp)")
    title, measured = summary.split("\n", 1)
    parts = [title, chosen.about, measured.strip(), "## Training"]
    parts += [curve(name, chosen.runs / name, chosen.out) for name in RUNS]
    (chosen.out / "README.md").write_text("\n\n".join(parts) + "\n")


def as_webp(picture: Path, target: Path) -> None:
    with Image.open(picture) as image:
        image.convert("RGB").save(target, "WEBP", quality=WEBP_QUALITY, method=6)


def curve(name: str, run: Path, out: Path) -> str:
    """A run's curve and samples as files, and a section about them."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    every = -(-len(lines) // MOST_LINES)
    kept = [line for place, line in enumerate(lines) if place % every == 0 or "validation_loss" in line]
    (out / f"curve-{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    samples = []
    for sheet in sorted((run / "samples").glob("*.png")):
        target = out / f"samples-{name}-{sheet.stem}.webp"
        as_webp(sheet, target)
        samples.append(f"[{sheet.stem}]({target.name})")
    shown = sorted({round(place * (len(lines) - 1) / (ROWS_SHOWN - 1)) for place in range(ROWS_SHOWN)})
    rows = "\n".join(row([lines[place] for place in range(max(0, n - 4), n + 1)]) for n in shown)
    return (
        f"`{name}`: [curve-{name}.jsonl](curve-{name}.jsonl), samples {', '.join(samples)}. "
        "Loss and PSNR are means of up to five lines of the curve.\n\n"
        f"| step | samples | loss | PSNR | validation loss |\n|---|---|---|---|---|\n{rows}"
    )


def row(lines: list[dict[str, Any]]) -> str:
    """The last of some lines of a curve, with the noisy ones averaged over all."""
    last = lines[-1]

    def mean(key: str, digits: int) -> str:
        values = [line[key] for line in lines if key in line]
        return f"{sum(values) / len(values):.{digits}f}" if values else ""

    validation = f"{last['validation_loss']:.4f}" if "validation_loss" in last else ""
    psnr = mean("psnr", 1)
    cells = (last["step"], f"{last['samples']:,}", mean("loss", 4), psnr and f"{psnr} dB", validation)
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
