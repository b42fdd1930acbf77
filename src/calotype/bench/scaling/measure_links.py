"""A program that measures the interconnect with timed all-reduces inside each node and between the nodes.

    torchrun --nnodes=2 --nproc-per-node=8 ... -m calotype.bench.scaling.measure_links links.json

The first rank writes the file that `calotype bench scale --links` reads.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from calotype.core.paths import atomic_write
from calotype.spec.records.scaling import Link, LinksRecord

BYTES = 2**28
_NUM_TIMES, _NUM_WARM = 10, 3


def link_of(count: int, num_bytes: int, small_s: float, large_s: float) -> Link:
    """Derive the link of a ring of `count` members from a tiny all-reduce and one of `num_bytes`."""
    ring_steps = 2 * (count - 1)
    transfer_s = max(large_s - small_s, 1e-9)
    return Link(
        members=count, latency_s=small_s / ring_steps, gb_s=ring_steps / count * num_bytes / transfer_s / 1e9
    )


def measured(num_bytes: int = BYTES) -> LinksRecord:
    """Measure on all ranks together; the ranks' results differ only in timing noise."""
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    nodes = world // local
    on_gpu = dist.get_backend() == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    inside = [dist.new_group(list(range(node * local, (node + 1) * local))) for node in range(nodes)]
    between = [dist.new_group(list(range(first, world, local))) for first in range(local)]
    links: dict[str, Link] = {}
    # All groups run at once, as in training, so that each gets its share of a node's bandwidth.
    for name, group, count, shared_by in (
        ("inside", inside[rank // local], local, 1),
        ("between", between[rank % local], nodes, local),
    ):
        if count > 1:
            times = [_timed(group, size, device) for size in (4, num_bytes)]
            one = link_of(count, num_bytes, *times)
            links[name] = one.model_copy(update={"gb_s": one.gb_s * shared_by})
    return LinksRecord(nodes=nodes, gpus_per_node=local, num_bytes=num_bytes, **links)


def _timed(group: dist.ProcessGroup, num_bytes: int, device: torch.device) -> float:
    tensor = torch.zeros(max(1, num_bytes // 4), device=device)
    synchronize: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = []
    for turn in range(_NUM_WARM + _NUM_TIMES):
        dist.barrier(group)
        synchronize()
        started = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        synchronize()
        if turn >= _NUM_WARM:
            times.append(time.perf_counter() - started)
    return median(times)


def main(out: Path, num_bytes: int = BYTES) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    record = measured(num_bytes)
    if dist.get_rank() == 0:
        with atomic_write(out, "w") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
