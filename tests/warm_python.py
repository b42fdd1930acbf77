"""A Python that has imported what it needs before it is started: it starts in a moment instead of seconds.

`warm_python()` is the path of a program to use like `sys.executable`. For `-m MODULE` and `-u -m` it hands
its words, variables, folder, held-back signals, namespaces and open files to a server with a single thread,
which forks a process that goes on from there; it passes on the signals it gets, and ends as that process
does. A process that is forked ends like any other interpreter, and what it starts with its own
`sys.executable` is warm too. For anything else it is the cold one.
Two things differ from a cold one: its parent is the server, and libraries have read the server's variables.

The server ends, with everybody it has forked, when the process that started it does. Knows nothing of tests.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import calotype

# What the tests import is what these processes import, wherever it is installed.
IMPORTED_FROM = (Path(__file__).parents[1], Path(calotype.__file__).parents[1])
PRELOADED = (
    "calotype.cli.main",
    "calotype.train.benchmark",
    "calotype.train.train",
    "diffusers.models.autoencoders.autoencoder_kl",
    "diffusers.models.unets.unet_2d_condition",
    "torch.distributed.run",
    "transformers.models.clip.modeling_clip",
)
_STARTS_WITHIN_S = 300
_LARGEST_REQUEST = 2**20
_NAMESPACES = ("net", "uts")

_PROGRAM = """#!{python} -IS
import json, os, resource, signal, socket, sys
if "-m" not in sys.argv[1:3]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: server.send(bytes([number])))
held = signal.pthread_sigmask(signal.SIG_SETMASK, ())
files = [0, 1, 2, *(os.open("/proc/self/ns/" + name, os.O_RDONLY) for name in {namespaces!r})]
asked = {{"words": sys.argv, "folder": os.getcwd(), "variables": dict(os.environ), "held": [*held]}}
socket.send_fds(server, [json.dumps(asked).encode()], files)
code = int(server.recv(16) or -9)
if code < 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@dataclass(frozen=True)
class Asked:
    """What one process is to be."""

    words: list[str]
    folder: str
    variables: dict[str, str]
    held: list[int]
    """Signals that are held back in it."""


@cache
def warm_python() -> str:
    """The program, for as long as this process lives."""
    program, stop = start(PRELOADED)
    atexit.register(stop)
    return program


def start(preloaded: Sequence[str]) -> tuple[str, Callable[[], None]]:
    """A server of its own: the program that asks it, and how to end it."""
    place = tempfile.mkdtemp(prefix="warm-")
    path = os.pathsep.join(str(folder) for folder in IMPORTED_FROM)
    # As the ranks of a training have it, and so that there is no thread to be lost in a fork.
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm_python", place, *preloaded],
        env={**os.environ, **quiet},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def stop() -> None:
        with server:
            try:
                server.communicate(timeout=30)
            finally:
                server.kill()

    with selectors.DefaultSelector() as waiting:
        waiting.register(server.stdout, selectors.EVENT_READ)
        assert waiting.select(_STARTS_WITHIN_S), "no warm Python within its time"
    assert server.stdout.readline() == b"warm\n", f"no warm Python: {server.poll()}"
    return str(Path(place, "python")), stop


class _Server:
    """Forks for whoever asks."""

    def __init__(self, place: Path) -> None:
        self._clients: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        address, program = place / "socket", place / "python"
        self._listener.bind(str(address))
        self._listener.listen(64)
        text = _PROGRAM.format(python=sys.executable, address=str(address), namespaces=_NAMESPACES)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        self._program = str(program)
        self._ended, self._wakes = os.pipe()
        for end in (self._ended, self._wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C at a terminal is for the tests; they end this.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._events = selectors.DefaultSelector()
        self._events.register(0, selectors.EVENT_READ)
        self._events.register(self._listener, selectors.EVENT_READ)
        self._events.register(self._ended, selectors.EVENT_READ)

    def serve(self) -> Asked | None:
        """Returns in every process that is forked, with what it is to run; in this one with nothing."""
        while True:
            for key, _ in self._events.select():
                if key.fileobj == 0:
                    self._kill_all()
                    return None
                if key.fileobj == self._ended:
                    self._tell_who_ended()
                elif key.fileobj is self._listener:
                    asked = self._fork()
                    if asked is not None:
                        return asked
                else:
                    self._pass_on(key.data, key.fileobj)

    def _fork(self) -> Asked | None:
        client, _ = self._listener.accept()
        data, files, _, _ = socket.recv_fds(client, _LARGEST_REQUEST, 8)
        if not data:
            client.close()
            return None
        pid = os.fork()
        if pid == 0:
            client.close()
            self._leave()
            _take_over(files)
            asked = Asked(**json.loads(data))
            sys.executable = self._program
            return asked
        for file in files:
            os.close(file)
        self._clients[pid] = client
        self._events.register(client, selectors.EVENT_READ, pid)
        return None

    def _leave(self) -> None:
        """Be no server any more."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._events.close()
        for each in (self._listener, *self._clients.values()):
            each.close()
        os.close(self._ended)
        os.close(self._wakes)
        os.setsid()

    def _pass_on(self, pid: int, client: Any) -> None:
        number = client.recv(1)
        if not number:
            # The program was killed, and its process with it.
            self._events.unregister(client)
        with suppress(ProcessLookupError):
            os.kill(pid, number[0] if number else signal.SIGKILL)

    def _tell_who_ended(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._ended, 4096)
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = self._clients.pop(pid)
            with suppress(OSError):
                client.send(str(os.waitstatus_to_exitcode(status)).encode())
            with suppress(KeyError):
                self._events.unregister(client)
            client.close()

    def _kill_all(self) -> None:
        for pid in self._clients:
            os.kill(pid, signal.SIGKILL)


def _take_over(files: list[int]) -> None:
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for name, file in zip(_NAMESPACES, files[3:], strict=True):
        if os.fstat(file).st_ino != Path("/proc/self/ns", name).stat().st_ino:
            assert ctypes.CDLL(None, use_errno=True).setns(file, 0) == 0, os.strerror(ctypes.get_errno())
    for file in files:
        os.close(file)


def _become(asked: Asked) -> None:
    """Do what `python WORDS` does; ends as that ends."""
    signal.pthread_sigmask(signal.SIG_SETMASK, asked.held)
    os.environ.clear()
    os.environ.update(asked.variables)
    os.chdir(asked.folder)
    _, *words = asked.words
    if words[0] == "-u":
        words = words[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # both are text
    assert words[0] == "-m", f"a warm Python runs modules alone, not {asked.words}"
    path = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:0] = [asked.folder, *path]
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()
    sys.argv = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


def _main(place: str, *preloaded: str) -> Asked | None:
    for name in preloaded:
        importlib.import_module(name)
    # What all share needs no looking after, and would be copied by it.
    gc.freeze()
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    assert len(threads) == 1, f"{len(threads)} threads after the imports; a fork would lose all but one"
    server = _Server(Path(place))
    print("warm", flush=True)
    asked = server.serve()
    if asked is None:
        shutil.rmtree(place)
    return asked


if __name__ == "__main__":
    _asked = _main(*sys.argv[1:])
    if _asked is not None:
        _become(_asked)
