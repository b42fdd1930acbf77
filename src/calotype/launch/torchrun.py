"""Torchrun's options and environment variables for a spec, the same on every backend. Runs nothing.

Nodes meet by a c10d rendezvous, so that no node needs to know its rank beforehand and a lost one may return.
Every printed line carries its rank, which separates logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from calotype.spec.launch import LaunchSpec

DEFAULT_PORT = 29500
PREFIX = "[rank${rank}]: "
"""Torchrun fills in the rank."""
_LINE = re.compile(r"\[rank(\d+)\]: ?")


def torchrun_options(spec: LaunchSpec, *, endpoint: str, run_id: str) -> list[str]:
    """All options before the command. `endpoint` and `run_id` may be shell expressions."""
    nodes = str(spec.nodes) if spec.min_nodes is None else f"{spec.min_nodes}:{spec.nodes}"
    options = [f"--nnodes={nodes}", f"--nproc-per-node={spec.processes_on_a_node}"]
    options += [f"--max-restarts={spec.max_restarts}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={run_id}"]
    # Torchrun writes the output to files, and forwards it line by line with the rank as a prefix.
    return [*options, "--tee=3"]


def torchrun_variables(spec: LaunchSpec) -> dict[str, str]:
    """Torchrun's environment variables: settings that old versions do not have as options."""
    return {
        # How long processes may take to save after SIGTERM; torchrun's default is 30 s.
        "PET_SHUTDOWN_TIMEOUT": str(spec.grace_s),
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": PREFIX,
        "PYTHONUNBUFFERED": "1",
    }


def of_rank(lines: Iterable[str], rank: int) -> Iterator[str]:
    """The lines of one rank, without their prefix; torchrun's own lines belong to no rank."""
    for line in lines:
        match = _LINE.match(line)
        if match and int(match[1]) == rank:
            yield line[match.end() :]
