"""The compilers on this machine, and whether they can build the code that torch.compile generates.

That code includes the headers of Python and uses OpenMP.
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
    """A host compiler, and whether it compiles a file that includes the headers of Python."""

    name: str
    version: str
    builds_extensions: bool


@dataclass(frozen=True)
class Toolchain:
    """The compilers of this machine; None for those that are not installed."""

    c: Compiler | None
    cxx: Compiler | None
    nvcc: str | None
    ptxas: str | None


def read_toolchain() -> Toolchain:
    """Read all compiler versions and test the two host compilers on a small file, in under a second."""
    return Toolchain(
        c=_host_compiler("CC", ("cc", "gcc", "clang"), ["-x", "c"], _C_TRIAL),
        # Only g++, as torch.compile tries no other unless $CXX is set.
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
    """The version in a --version banner; text in parentheses is from the packager and may differ."""
    text = re.sub(r"\([^)]*\)", "", banner)
    # NVIDIA tools print the full version as V13.0.88 after a shorter one.
    found = re.search(r"\bV(\d+(?:\.\d+)+)", text) or re.search(r"(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else "unknown"
