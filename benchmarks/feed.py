"""How fast the data feed hands out batches of a real set, and what that costs in CPU time. Trains nothing.

    PYTHONPATH=src python3 benchmarks/feed.py ./emoji-data/train --workers 16
    PYTHONPATH=src python3 benchmarks/feed.py ./emoji-data/train --workers 2 --in-memory

Every batch goes to the device (the GPU if there is one) and becomes numbers there, as in training. Prints one
JSON object: seconds until the feed was open (with --in-memory everything is decoded then), samples/s, and CPU
ms a sample in the main process (its threads and the arithmetic on a CPU device included) and in the workers,
which have prefetched a little before the clock starts. On a machine with other work, trust the CPU times.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from itertools import islice
from pathlib import Path

import torch

from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.dataloader import build_dataloader
from calotype.train.data.requirements import DataRequirements


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", help="as data.path in a recipe")
    parser.add_argument("--kind", default="shards", choices=["shards", "folder", "mds"])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--micro-batch", type=int, default=512)
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--batches", type=int, default=40, help="that are timed, after 4 that are not")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    part = DataConfig(
        kind=chosen.kind, path=chosen.path, num_workers=chosen.workers, in_memory=chosen.in_memory
    )
    print(json.dumps(measured(part, chosen)))


def measured(part: DataConfig, chosen: argparse.Namespace) -> dict[str, float | int | str | bool]:
    device = torch.device(chosen.device)
    # Only the resolution and the device matter to pictures.
    needs = DataRequirements(chosen.resolution, 4, 8, 77, 768, None, device)
    started = time.perf_counter()
    with build_dataloader(part, needs, micro_batch_size=chosen.micro_batch) as feed:
        opened_s = time.perf_counter() - started
        batches = (batch.to(device, non_blocking=True) for batch in feed)
        for _ in islice(batches, 4):
            pass
        finish(device)
        started, main_s, workers_s = time.perf_counter(), time.process_time(), cpu_of_workers_s()
        for _ in islice(batches, chosen.batches):
            pass
        finish(device)
        seconds = time.perf_counter() - started
        main_s, workers_s = time.process_time() - main_s, cpu_of_workers_s() - workers_s
    samples = chosen.batches * chosen.micro_batch
    return {
        "workers": part.num_workers,
        "in_memory": part.in_memory,
        "micro_batch": chosen.micro_batch,
        "resolution": chosen.resolution,
        "device": str(device),
        "cores": len(os.sched_getaffinity(0)),
        "opened_s": round(opened_s, 2),
        "samples_per_s": round(samples / seconds),
        "main_cpu_ms_per_sample": round(1000 * main_s / samples, 4),
        "worker_cpu_ms_per_sample": round(1000 * workers_s / samples, 4),
    }


def cpu_of_workers_s() -> float:
    """CPU time of the processes this one has started and that still run."""
    ticks = 0
    for worker in multiprocessing.active_children():
        after_name = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
