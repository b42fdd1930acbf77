"""Measures the memory of SDXL at every batch and size of a published table, beside that table's figures.

Each preset has a process of its own, and each point begins on an empty device: the model is loaded as
`calotype` does, makes pictures with a few steps, and what torch allocated, what it reserved and what the
device gave in all are noted. The weights are zeros: how much memory is taken does not depend on numbers.

    PYTHONPATH=src:build/offline python3 benchmarks/memory.py --out benchmarks/DATE-memory

Writes results.json after every point and table.md at the end; points that are there already are not run
again. A point that fails says so. Wants the GPU to itself. On a host without network see
scripts/offline-bundle first. `--device cpu` tries it all on a shrunk model, and measures nothing.
"""

# ruff: noqa: PLC0415 - who starts the processes needs no torch, and the device is theirs.

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from calotype.bench.references.load import distinct
from calotype.bench.references.units import first

PRESETS = ("low-memory", "fast")
STEPS = 3
"""Under `fast` the first evaluation runs as it is, the second is recorded, the third is a replay."""
LIMIT_S = 120.0
"""Of one point; a first one also compiles kernels."""
GB = 10**9


@dataclass(frozen=True)
class Point:
    """What is made at once, and what the table says it took."""

    preset: str
    batch: int
    width: int
    height: int
    cfg: float
    published_gb: float
    device: str

    @property
    def name(self) -> str:
        return f"{self.preset} {self.width}x{self.height} b{self.batch}"


def points(preset: str, device: str) -> list[Point]:
    """Every row of the published table that has a figure of memory, smallest first."""
    found = []
    for entry in distinct():
        figure, asked = first(entry, "peak_memory"), entry.settings
        if entry.source == "comfyui" and figure is not None:
            assert figure.unit == "GB"
            assert asked.batch and asked.width and asked.height and asked.cfg  # noqa: PT018 - all or none
            known = (asked.batch, asked.width, asked.height, asked.cfg, figure.value)
            found.append(Point(preset, *known, device))
    return sorted(found, key=lambda point: point.width * point.height * point.batch)


def measure(points: Sequence[Point], results: Connection) -> None:
    """What the process of a preset does: one point after another, each from an empty device."""
    for point in points:
        try:
            figures = _figures(point)
        except Exception as error:
            figures = {"error": f"{type(error).__name__}: {error}"[:500]}
        results.send(figures)
    results.close()


def _figures(point: Point) -> dict[str, Any]:
    import torch

    from calotype.models import catalogue

    device = torch.device(point.device)
    if device.type == "cuda":
        return {**_emptied(device), **_pictures(point, catalogue.architecture("sdxl"), torch.float16, device)}
    from tests.small_models import shrunk

    small = replace(point, batch=min(2, point.batch), width=point.width // 8, height=point.height // 8)
    return _pictures(small, shrunk("sdxl"), torch.float32, device)


def _emptied(device: Any) -> dict[str, int]:
    """Everything of the point before given back, and peaks forgotten; what could not be is told."""
    import torch

    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return {"reserved_before_bytes": torch.cuda.memory_reserved(device)}


def _pictures(point: Point, architecture: Any, dtype: Any, device: Any) -> dict[str, Any]:
    import torch

    from calotype.engine.engine import Engine
    from calotype.engine.load import load_model_for_preset
    from calotype.engine.memory_planner import MemoryBudget, MemoryDemand, predicted_bytes
    from calotype.models.resolve import random_identity
    from calotype.models.weights import RandomWeights

    class Zeros(RandomWeights):
        """Made where they are wanted, so that a large model is there at once."""

        def read(self, part: str, name: str) -> torch.Tensor:
            return torch.zeros(self.architecture.tensor_shapes(part)[name], dtype=dtype, device=device)

    started = time.perf_counter()
    identity = random_identity("random:sdxl", architecture, 0)
    model = load_model_for_preset(point.preset, Zeros(architecture), identity, dtype=dtype, device=device)
    loaded = _taken(device)
    engine = Engine(model, preset=point.preset)
    predicted = predicted_bytes(
        architecture,
        MemoryBudget(sys.maxsize, "", dtype.itemsize, next(model.vae.parameters()).element_size()),
        MemoryDemand(point.width, point.height, point.batch, batch_size=point.batch, tile_vae=False),
        engine._networks.extras,
        text_aside=engine._networks.text_aside,
    )
    asked = {"width": point.width, "height": point.height, "cfg": point.cfg, "steps": STEPS, "seed": 1}
    many = {"count": point.batch, "batch_size": point.batch}
    made = engine.generate("a lighthouse", sampler="euler", tile_vae=False, **asked, **many)
    assert len(made.images) == point.batch
    return {
        **_taken(device),
        "loaded": loaded,
        "predicted_bytes": predicted,
        "seconds": time.perf_counter() - started,
    }


def _taken(device: Any) -> dict[str, int]:
    """Peaks. What the device gives beside torch's memory (context, kernels, libraries) is not given back."""
    import torch

    if device.type != "cuda":
        return {}
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    beside = total - free - torch.cuda.memory_reserved(device)
    reserved = torch.cuda.max_memory_reserved(device)
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(device),
        "reserved_bytes": reserved,
        "beside_bytes": beside,
        "device_bytes": reserved + beside,
    }


def run(
    points: Sequence[Point], target: Callable[[Sequence[Point], Connection], None] = measure
) -> Iterator[dict[str, Any]]:
    """Rows of points, in order. A process that dies or does not answer ends with the point it was at."""
    todo = list(points)
    while todo:
        context = multiprocessing.get_context("spawn")
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(tuple(todo), send))
        process.start()
        send.close()
        error: str | None = None
        while todo and error is None:
            figures: dict[str, Any] = {}
            try:
                answered = receive.poll(LIMIT_S)
                figures = receive.recv() if answered else {"error": f"not done after {LIMIT_S:.0f} s"}
                error = None if answered else "too long"
            except EOFError:
                error = "its process died"
                figures = {"error": error}
            yield {"point": asdict(todo.pop(0)), **figures}
        if error:
            process.kill()
        process.join(LIMIT_S)


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Ours beside the published figure, in GB of 10⁹ bytes; what is not above it in bold."""
    lines = ["| batch | size | published | preset | allocated | reserved | device | predicted |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows.values():
        point = row["point"]
        known = f"| {point['batch']} | {point['width']}×{point['height']} | {point['published_gb']} "
        if "error" in row:
            lines.append(f"{known}| `{point['preset']}` | {row['error']} | | | |")
            continue
        names = ("allocated_bytes", "reserved_bytes", "device_bytes", "predicted_bytes")
        cells = [_cell(row.get(name), point["published_gb"]) for name in names]
        lines.append(f"{known}| `{point['preset']}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(taken: int | None, published_gb: float) -> str:
    if taken is None:
        return ""
    return f"**{taken / GB:.2f}**" if taken <= published_gb * GB else f"{taken / GB:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--presets", nargs="*", default=PRESETS)
    parser.add_argument("--only", nargs="*", help="points by name, such as 'fast 512x512 b1'")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--limit-s", type=float, default=float("inf"), help="end after the point that is under way then"
    )
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    place, started = chosen.out / "results.json", time.monotonic()
    results: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {"rows": {}}
    results.setdefault("commands", []).append(f"python3 {' '.join(sys.argv)}")
    for preset in chosen.presets:
        todo = [p for p in points(preset, chosen.device) if not chosen.only or p.name in chosen.only]
        for row in run([p for p in todo if "predicted_bytes" not in results["rows"].get(p.name, {})]):
            name = Point(**row["point"]).name
            results["rows"][name] = row
            place.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps({key: row[key] for key in row if key != "point"}), flush=True)
            if time.monotonic() - started > chosen.limit_s:
                break
    from calotype.engine.torch_info import full_fingerprint

    # Last: it takes some of the device's memory for itself.
    results["environment"] = full_fingerprint().as_dict()
    place.write_text(json.dumps(results, indent=1, default=str) + "\n")
    (chosen.out / "table.md").write_text(table(results["rows"]))


if __name__ == "__main__":
    main()
