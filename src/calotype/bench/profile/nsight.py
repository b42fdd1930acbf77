"""Builds the command lines that profile the same job with NVIDIA's tools."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from calotype.spec.records.profile import NsightCommand


def nsight_commands(command: str, out: Path, stage: str) -> list[NsightCommand]:
    """Return the commands; `command` is ours, and `stage` the stage to examine with Nsight Compute."""
    ours = [*shlex.split(command), "--out", str(out), "--marks-only"]
    nsys = [
        *("nsys", "profile", "--trace=cuda,nvtx,cublas,cudnn", "--cuda-graph-trace=node"),
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", f"--output={out / 'nsys'}"),
    ]
    ncu = [
        *("ncu", "--profile-from-start", "off", "--nvtx", "--nvtx-include", f"{stage}/"),
        *("--set", "full", "--launch-count", "50", "--export", str(out / "ncu")),
    ]
    return [
        NsightCommand(
            program="nsys",
            installed=_installed("nsys"),
            command=shlex.join([*nsys, *ours]),
            shows="the whole timeline: host threads, launches, kernels, copies and the stages by name",
        ),
        NsightCommand(
            program="ncu",
            installed=_installed("ncu"),
            command=shlex.join([*ncu, *ours]),
            shows=f"what limits each of the first 50 kernels of the stage {stage!r}; runs each many times",
        ),
    ]


def _installed(program: str) -> bool:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = os.pathsep.join([os.environ.get("PATH", ""), *(f"{home}/bin" for home in homes if home)])
    return shutil.which(program, path=places) is not None
