"""Installs a system-call filter in the current process: calls that are not on the list fail with EPERM.

The list allows memory, time, and reading and writing open files. It forbids opening files, sockets, programs,
processes, signals to others and executable memory. It supports x86-64 and ARM64 Linux only.
"""

import ctypes
import errno
import platform
import struct
import sys
from typing import NamedTuple

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_DENY = 0x00050000 | errno.EPERM
_PROT_EXEC = 4

# Classic BPF: load a word of the call's description, compare it, and return the action.
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_OFFSET_CALL = 0
_OFFSET_MACHINE = 4
_OFFSET_THIRD_ARGUMENT = 32


class _Machine(NamedTuple):
    audit_number: int
    allowed: tuple[int, ...]
    memory_with_protection: tuple[int, ...]


# Per line of calls: read write close fstat lseek munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64
# pwrite64; readv writev sched_yield mremap madvise getpid exit ftruncate gettimeofday sigaltstack futex
# restart_syscall; clock_gettime exit_group getrandom rseq.
# The last pair is mmap and mprotect, which are allowed except for executable memory.
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        (
            *(0, 1, 3, 5, 8, 11, 12, 13, 14, 15, 17, 18),
            *(19, 20, 24, 25, 28, 39, 60, 77, 96, 131, 202, 219),
            *(228, 231, 318, 334),
        ),
        (9, 10),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        (
            *(63, 64, 57, 80, 62, 215, 214, 134, 135, 139, 67, 68),
            *(65, 66, 124, 216, 233, 172, 93, 46, 169, 132, 98, 128),
            *(113, 94, 278, 293),
        ),
        (222, 226),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install() -> bool:
    """Start filtering this process's system calls; return False where the system does not support it."""
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return False
    code = _assemble(machine)
    program = _Program(len(code) // 8, code)
    status: int = ctypes.CDLL(None).prctl(
        ctypes.c_int(_PR_SET_SECCOMP), ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0
    )
    return status == 0


def _assemble(machine: _Machine) -> bytes:
    code = [
        _instruction(_LOAD, _OFFSET_MACHINE),
        _instruction(_JUMP_EQUAL, machine.audit_number, if_true=1),
        _instruction(_RETURN, _DENY),
        _instruction(_LOAD, _OFFSET_CALL),
    ]
    for call in machine.allowed:
        code += [_instruction(_JUMP_EQUAL, call, if_false=1), _instruction(_RETURN, _ALLOW)]
    for call in machine.memory_with_protection:
        code += [
            _instruction(_JUMP_EQUAL, call, if_false=4),
            _instruction(_LOAD, _OFFSET_THIRD_ARGUMENT),
            _instruction(_JUMP_ANY_BIT, _PROT_EXEC, if_false=1),
            _instruction(_RETURN, _DENY),
            _instruction(_RETURN, _ALLOW),
        ]
    code.append(_instruction(_RETURN, _DENY))
    return b"".join(code)


def _instruction(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)
