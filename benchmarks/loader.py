"""What a core's loader can feed: JPEG pictures in tar shards, read, decoded and cropped as training would.

    PYTHONPATH=src python3 benchmarks/loader.py --out benchmarks/DATE-loader

Makes sets of pictures whose files are as large as photographs' (soft shapes with a little grain), at the size
that is trained at and at four times as many pixels, and measures each with `calotype bench data`. Writes
README.md, whose samples per core come from processor time and hold on a busy machine too.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from calotype.core.fingerprint import fingerprint
from calotype.train.data.sources.webdataset_writer import Packed, write_shards

SIDES = (512, 1024)
PICTURES, IN_A_SHARD = 240, 60
GRAIN = 12
RECIPE = ("sd2-base", "data.kind=shards", "model.micro_batch_size=8", "model.global_batch_size=8")
WINDOW = ("--workers=0,1,2", "--batches=40", "--warmup=5", "--gpu-samples-per-s=114", "--json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory() as place:
        for side in SIDES:
            folder = Path(place) / str(side)
            size = sum(path.stat().st_size for path in write_shards(folder, pictures(side), IN_A_SHARD))
            for row in measured(folder):
                cpu_s = row["series"]["cpu_per_sample"]["summary"]["median"]
                cells = (f"{side}²", f"{size / PICTURES / 1000:.0f} kB", row["settings"]["workers"])
                lines.append((*cells, f"{row['samples_per_s']:.0f}", f"{1 / cpu_s:.0f}"))
    (chosen.out / "README.md").write_text(report(lines), encoding="utf-8")


def pictures(side: int) -> Iterator[Packed]:
    for number in range(PICTURES):
        chance = random.Random(number)  # noqa: S311 - pictures, no secrets
        spots = Image.frombytes("RGB", (24, 24), chance.randbytes(24 * 24 * 3))
        grain = Image.effect_noise((side, side), GRAIN).convert("RGB")
        picture = ImageChops.add(
            spots.resize((side, side), Image.Resampling.BICUBIC), grain, scale=1, offset=-128
        )
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=90)
        yield Packed(f"{number:06d}", {"jpg": file.getvalue(), "txt": f"picture {number}"})


def measured(folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "calotype", "bench", "data", *RECIPE, f"data.path={folder}", *WINDOW]
    with tempfile.TemporaryDirectory() as records:
        done = subprocess.run(  # noqa: S603 - our own module
            [*command, "--out", records], check=True, stdout=subprocess.PIPE, text=True
        )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def report(lines: list[tuple[Any, ...]]) -> str:
    machine = fingerprint()
    cpu = machine.cpu
    table = "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
    return f"""# What a core's loader can feed

{date.today().isoformat()}, {cpu.num_usable_cores} cores of {cpu.model}; `PYTHONPATH=src python3 benchmarks/loader.py --out DIR`.
JPEG pictures in tar shards, trained at 512²: read, decoded, scaled, cropped, put into batches of 8.
Samples per core are told from processor time, main process and workers together.

| pictures | a file | workers | samples/s | samples/s a core |
|---|---|---|---|---|
{table}
"""  # noqa: E501 - a line of Markdown


if __name__ == "__main__":
    main()
