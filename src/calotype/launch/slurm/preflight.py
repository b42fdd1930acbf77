"""Reads a cluster's partitions from `sinfo`, and finds what of a spec they can never run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calotype.core.errors import Problem, did_you_mean
from calotype.launch.slurm.commands import run_slurm
from calotype.spec.launch import LaunchSpec

_COLUMNS = "%P|%a|%l|%s|%N|%c|%m|%G"
_GPU = re.compile(r"(?<![^,])gpu(?::([^:,()]+))?(?::no_consume)?:(\d+)(?![^,(])")
"""In `gpu:8`, `gpu:h100:8(S:0-1)`, `gpu:2080ti:4,nvme:1`, `gpu:1g.10gb:7`: a type may begin with a digit."""


@dataclass(frozen=True)
class Node:
    """A node."""

    name: str
    cpus: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...]
    """Type (empty if the cluster does not report it) and number."""

    def num_gpus(self, kind: str | None) -> int:
        return sum(number for name, number in self.gpus if kind in (None, name))


@dataclass(frozen=True)
class Partition:
    """A set of nodes with limits of its own."""

    name: str
    is_default: bool
    is_up: bool
    time_limit_s: int | None
    most_nodes: int | None
    """Per job."""
    nodes: tuple[Node, ...]


def partitions() -> list[Partition]:
    """The partitions of the cluster."""
    return parsed(run_slurm("sinfo", "--noheader", "--Node", f"--format={_COLUMNS}"))


def parsed(text: str) -> list[Partition]:
    """Parse the output of `sinfo --Node`, one line per partition and node."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        name, up, limit, size, node, cpus, memory, gres = line.strip().split("|")
        gpus = tuple((kind or "", int(number)) for kind, number in _GPU.findall(gres))
        one = Node(node, int(cpus.rstrip("+")), int(memory.rstrip("+")), gpus)
        before = found.get(name)
        most = size.rpartition("-")[2]
        found[name] = Partition(
            name.rstrip("*"),
            name.endswith("*"),
            up == "up",
            limit_s(limit),
            int(most) if most.isdigit() else None,
            (*(before.nodes if before else ()), one),
        )
    return list(found.values())


def limit_s(text: str) -> int | None:
    """Seconds of `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`; None for `infinite`."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in (days or "0", *parts)):
        return None
    hours, minutes, seconds = ([0, 0, 0, *map(int, parts)])[-3:]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def partitions_of(spec: LaunchSpec, known: Sequence[Partition]) -> list[Partition]:
    """The requested partitions, of which Slurm uses the first that is free; or the cluster's default."""
    requested = _names(spec)
    return [each for each in known if (each.name in requested if requested else each.is_default)]


def problems_with(spec: LaunchSpec, known: Sequence[Partition]) -> list[Problem]:
    """Settings that the cluster can never run; being busy is no problem."""
    chosen, names = partitions_of(spec, known), [partition.name for partition in known]
    if not chosen and not _names(spec):
        return [Problem("slurm.partition", f"the cluster has no default; {did_you_mean('', names)}")]
    unknown = [
        Problem("slurm.partition", f"no partition {name!r}; {did_you_mean(name, names)}", name)
        for name in _names(spec)
        if name not in names
    ]
    found = [[*_limits(spec, partition), *_machines(spec, partition)] for partition in chosen]
    # One partition that can run the job is enough.
    return unknown or ([] if not all(found) else [problem for problems in found for problem in problems])


def _names(spec: LaunchSpec) -> list[str]:
    return spec.slurm.partition.split(",") if spec.slurm.partition else []


def _limits(spec: LaunchSpec, partition: Partition) -> Iterable[Problem]:
    where = f"partition {partition.name}"
    if not partition.is_up:
        yield Problem(
            "slurm.partition", f"{where} is down; use another, or ask its administrator", partition.name
        )
    limit = partition.time_limit_s
    if limit is not None and (spec.time_limit_s or 0) > limit:
        rule = f"{spec.time_limit} is more than {where} allows; ask for at most {_clock(limit)}"
        yield Problem("time_limit", rule, spec.time_limit)
    if partition.most_nodes is not None and (spec.min_nodes or spec.nodes) > partition.most_nodes:
        rule = (
            f"{spec.nodes} nodes are more than {where} allows per job; ask for at most {partition.most_nodes}"
        )
        yield Problem("nodes", rule, spec.nodes)


def _machines(spec: LaunchSpec, partition: Partition) -> list[Problem]:
    kind, where = spec.slurm.gpu_type, f"partition {partition.name}"
    kinds = sorted({name for node in partition.nodes for name, _ in node.gpus if name})
    if kind is not None and spec.gpus_per_node and kind not in kinds:
        return [Problem("slurm.gpu_type", f"no {kind!r} in {where}; {did_you_mean(kind, kinds)}", kind)]
    requested = {
        "gpus_per_node": (spec.gpus_per_node, "GPUs", [node.num_gpus(kind) for node in partition.nodes]),
        "cpus_per_node": (spec.cpus_per_node or 0, "CPUs", [node.cpus for node in partition.nodes]),
        "memory_per_node": (spec.memory_mib or 0, "MiB", [node.memory_mib for node in partition.nodes]),
    }
    problems = [
        Problem(
            field,
            f"{number} {unit} are more than a node of {where} has; ask for at most {max(available)}",
            number,
        )
        for field, (number, unit, available) in requested.items()
        if number > max(available)
    ]
    if problems:
        return problems
    num_fitting = sum(
        all(available[index] >= number for number, _, available in requested.values())
        for index in range(len(partition.nodes))
    )
    min_nodes = spec.min_nodes or spec.nodes
    if min_nodes > num_fitting:
        rule = (
            f"{min_nodes} nodes are more than {where} has with so many GPUs, CPUs and memory; "
            f"ask for at most {num_fitting}"
        )
        return [Problem("nodes", rule, min_nodes)]
    return []


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
