"""The seal of the reading process, tried from inside: what it must not do, it cannot."""

import json
import os
import subprocess
import sys
from pathlib import Path

from calotype.models.files.pickle_child import bootstrap

# Runs as the reading process does, with the same interpreter options, then tries one thing after another.
PROBE = """
import ctypes, json, mmap, os, runpy, signal, socket, subprocess, sys
runpy.run_path(sys.argv[1])["expose_packages"]()
from calotype.models.files.pickle_child import sandbox, seccomp
assert "torch" not in sys.modules
folder, with_filter = sys.argv[2], sys.argv[3] == "filter"
if not with_filter:
    seccomp.install = lambda: False
kept = os.open(folder + "/kept", os.O_RDWR | os.O_CREAT)
library = ctypes.CDLL(None, use_errno=True)
attempts = {
    "read another file": lambda: os.open("/etc/hostname", os.O_RDONLY),
    "write another file": lambda: os.open(folder + "/made", os.O_WRONLY | os.O_CREAT),
    "remove a file": lambda: os.unlink(folder + "/kept"),
    "rename a file": lambda: os.rename(folder + "/kept", folder + "/moved"),
    "list a folder": lambda: os.listdir("/"),
    "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "open a local socket": lambda: socket.socket(socket.AF_UNIX),
    "fork": lambda: os.fork() or os._exit(0),
    "run a program": lambda: os.execv("/bin/true", ["true"]),
    "start a program": lambda: subprocess.run(["/bin/touch", folder + "/made"]),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "trace": lambda: library.ptrace(16, 1, 0, 0) == 0 or fail(),
    "make memory executable": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    "raise its limits": lambda: __import__("resource").setrlimit(7, (4096, 4096)),
    "load a module": lambda: __import__("sqlite3"),
    "become somebody else": lambda: os.setgid(12345),
    "write too much": lambda: os.pwrite(kept, b"x" * 2000, 0) == 2000 or fail(),
    "take too much memory": lambda: bytearray(3 * 2**30),
    "read what is open": lambda: os.pread(kept, 10, 0),
    "write what is open": lambda: os.pwrite(kept, b"x", 0),
    "take memory": lambda: bytearray(2**26),
}
def fail():
    raise OSError("refused")
held = sandbox.enter_sandbox(sandbox.SandboxLimits(memory_bytes=2**30, cpu_s=5, wall_s=5, output_bytes=1000))
outcome = {"held": held}
for name, attempt in attempts.items():
    if with_filter or name in sys.argv[4:]:
        try:
            attempt()
            outcome[name] = "done"
        except BaseException as error:
            outcome[name] = type(error).__name__
os.write(1, json.dumps(outcome).encode())
os._exit(0)
"""
ALLOWED = {"read what is open", "write what is open", "take memory"}


def probe(folder: Path, *arguments: str) -> dict[str, object]:
    command = [sys.executable, "-I", "-S", "-c", PROBE, bootstrap.__file__, str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_a_sealed_process_can_only_use_what_is_open(tmp_path: Path) -> None:
    outcome = probe(tmp_path, "filter")
    held = outcome.pop("held")
    assert isinstance(held, list)
    assert {"no_new_privs", "rlimits", "seccomp"} <= set(held)
    assert {name for name, result in outcome.items() if result == "done"} == ALLOWED
    assert outcome["take too much memory"] == "MemoryError"
    assert outcome["open a socket"] == outcome["fork"] == outcome["read another file"] == "PermissionError"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_without_the_filter_the_limits_still_hold(tmp_path: Path) -> None:
    limited = ("write too much", "take too much memory", "raise its limits")
    outcome = probe(tmp_path, "no filter", *limited, *ALLOWED)
    assert outcome.pop("held") in (["namespaces", "no_new_privs", "rlimits"], ["no_new_privs", "rlimits"])
    raised = outcome.pop("raise its limits")
    assert raised == "ValueError" or os.getuid() == 0
    assert {name for name, result in outcome.items() if result == "done"} == ALLOWED
    assert (tmp_path / "kept").stat().st_size <= 1000


def test_the_reading_process_starts_without_torch() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1])['expose_packages']()\n"
    code += "import calotype.models.files.pickle_child.main\n"
    code += "sys.exit(any(name.split('.')[0] in ('torch', 'numpy', 'rich') for name in sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, bootstrap.__file__], check=False, timeout=300
        ).returncode
        == 0
    )
