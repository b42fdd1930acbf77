"""The compilers on this machine, and whether they can build what torch.compile asks them to.

Knows nothing of torch: only that compiled code includes Python's own headers and uses OpenMP.
"""

import os
import re
import shlex
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calotype.core.process import command_output

_CXX_TRIAL = "#include <Python.h>\n#include <omp.h>\n#include <vector>\nstd::vector<int> trial;\n"
_C_TRIAL = "#include <Python.h>\nint trial;\n"


@dataclass(frozen=True)
class Compiler:
    """A compiler for the host, and whether a file that includes Python's headers gets through it."""

    name: str
    version: str
    builds_extensions: bool


@dataclass(frozen=True)
class Toolchain:
    """What can be compiled here. None means that the program is not on this machine."""

    c: Compiler | None
    cxx: Compiler | None
    nvcc: str | None
    ptxas: str | None


def read_toolchain() -> Toolchain:
    """Ask every compiler for its version and try the host's two on a small file; under a second."""
    return Toolchain(
        c=_host_compiler("CC", ("cc", "gcc", "clang"), ["-x", "c"], _C_TRIAL),
        # Only g++ is looked for, because that is all torch.compile looks for unless $CXX says otherwise.
        cxx=_host_compiler("CXX", ("g++",), ["-x", "c++", "-std=c++17", "-fopenmp"], _CXX_TRIAL),
        nvcc=_cuda_tool("nvcc"),
        ptxas=_cuda_tool("ptxas"),
    )


def _host_compiler(variable: str, names: Sequence[str], flags: Sequence[str], trial: str) -> Compiler | None:
    chosen = shlex.split(os.environ.get(variable, ""))
    for command in [chosen] if chosen else [[name] for name in names]:
        banner = command_output([*command, "--version"])
        if banner:
            include = f"-I{sysconfig.get_path('include')}"
            built = command_output([*command, *flags, include, "-fsyntax-only", "-"], question=trial)
            return Compiler(Path(command[-1]).name, version_in(banner), built is not None)
    return None


def _cuda_tool(name: str) -> str | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for command in [name, *(str(Path(home) / "bin" / name) for home in homes if home)]:
        banner = command_output([command, "--version"])
        if banner:
            return version_in(banner)
    return None


def version_in(banner: str) -> str:
    """The version in a compiler's greeting; what stands in brackets is the packager's and may differ."""
    text = re.sub(r"\([^)]*\)", "", banner)
    # NVIDIA's tools write the whole version as V13.0.88 after a shorter one.
    found = re.search(r"\bV(\d+(?:\.\d+)+)", text) or re.search(r"(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else "unknown"
