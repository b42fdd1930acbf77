"""The words of torchrun for a spec, the same on every back end. Runs nothing.

Nodes find each other by a c10d rendezvous, so that no node needs to know its number beforehand and a lost one
may come back. What a rank prints carries its number, which is how logs are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from calotype.spec.launch import LaunchSpec

DEFAULT_PORT = 29500
PREFIX = "[rank${rank}]: "
"""Torchrun fills in the number."""
_LINE = re.compile(r"\[rank(\d+)\]: ?")


def torchrun_options(spec: LaunchSpec, *, endpoint: str, run_id: str) -> list[str]:
    """All options but the command's own words. `endpoint` and `run_id` may be a shell's own expressions."""
    nodes = str(spec.nodes) if spec.min_nodes is None else f"{spec.min_nodes}:{spec.nodes}"
    options = [f"--nnodes={nodes}", f"--nproc-per-node={spec.processes_on_a_node}"]
    options += [f"--max-restarts={spec.max_restarts}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={run_id}"]
    # Written to a file of its own by torchrun, and handed on line by line with the rank before it.
    return [*options, "--tee=3"]


def torchrun_variables(spec: LaunchSpec) -> dict[str, str]:
    """What torchrun is told by variables: those that old versions would not know as options."""
    return {
        # How long processes may take to save when they are told to stop; torchrun's own limit is 30 s.
        "PET_SHUTDOWN_TIMEOUT": str(spec.grace_s),
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": PREFIX,
        "PYTHONUNBUFFERED": "1",
    }


def of_rank(lines: Iterable[str], rank: int) -> Iterator[str]:
    """The lines of one rank, without their mark; torchrun's own are nobody's."""
    for line in lines:
        marked = _LINE.match(line)
        if marked and int(marked[1]) == rank:
            yield line[marked.end() :]
