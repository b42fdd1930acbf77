"""Drops the privileges of the current process before it reads untrusted bytes: on Linux, less elsewhere.

The process cannot undo any of it.
"""

import ctypes
import resource
import signal
import sys
from dataclasses import dataclass
from typing import Self

from calotype.models.files.pickle_child import seccomp

_MIB = 1024 * 1024
_GIB = 1024 * _MIB
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MAX_DESCRIPTORS = 16


@dataclass(frozen=True)
class SandboxLimits:
    """The resources that one conversion may use before it is stopped."""

    memory_bytes: int
    cpu_s: int
    wall_s: int
    output_bytes: int

    @classmethod
    def for_file(cls, size_bytes: int) -> Self:
        """Limits that a valid file of this size meets on a slow disk.

        The output may be larger than the input: tied weights are written once per name, expanded tensors in
        full.
        """
        return cls(
            memory_bytes=2 * _GIB,
            cpu_s=60 + size_bytes // (50 * _MIB),
            wall_s=120 + size_bytes // (20 * _MIB),
            output_bytes=4 * size_bytes + 16 * _MIB,
        )


def enter_sandbox(limits: SandboxLimits) -> list[str]:
    """Apply every protection that this system offers; return the names of those now active."""
    active = []
    # Namespaces come first: they need a process slot, and entering one clears the death signal.
    if _linux_call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET):
        active.append("namespaces")
    _linux_call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if _linux_call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        active.append("no_new_privs")
    _lower(resource.RLIMIT_AS, limits.memory_bytes)
    # SIGKILL follows a second later; the soft limit's signal tells the parent why the process ended.
    _lower(resource.RLIMIT_CPU, limits.cpu_s, grace=1)
    _lower(resource.RLIMIT_FSIZE, limits.output_bytes)
    _lower(resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS)
    _lower(resource.RLIMIT_NPROC, 0)
    _lower(resource.RLIMIT_CORE, 0)
    active.append("rlimits")
    if seccomp.install():
        active.append("seccomp")
    return active


def _lower(kind: int, limit: int, grace: int = 0) -> None:
    _, ceiling = resource.getrlimit(kind)
    unlimited = ceiling == resource.RLIM_INFINITY
    soft, hard = (limit if unlimited else min(limit, ceiling)), limit + grace
    resource.setrlimit(kind, (soft, hard if unlimited else min(hard, ceiling)))


def _linux_call(name: str, *arguments: int) -> bool:
    """Call a function of the C library; False where a container or an old kernel forbids it."""
    if sys.platform != "linux":
        return False
    function = getattr(ctypes.CDLL(None), name, None)
    return function is not None and function(*(ctypes.c_ulong(argument) for argument in arguments)) == 0
