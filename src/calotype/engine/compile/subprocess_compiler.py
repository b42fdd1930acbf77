"""Regions compiled in processes of their own, so that whoever makes pictures meanwhile hardly notices.

Compiling takes minutes of a processor, keeps Python's lock for seconds at a time, and changes what modules do
while it looks at them. Knows nothing of engines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree
from signal import SIGKILL, SIGSEGV
from tempfile import gettempdir, mkdtemp
from typing import Any
from weakref import finalize

import torch
from filelock import FileLock, Timeout

from calotype.core.errors import CalotypeError
from calotype.engine.compile.aot_package import OTHER_COMPILER, SUFFIX
from calotype.engine.compile.manager import CompileAbandonedError
from calotype.engine.compile.region import CompileRequest, RegionSignature
from calotype.engine.device import precision_name
from calotype.models.model import Model

_PREFIX, _LOCK = "calotype-compiled-", ".lock"
_MOST_AT_ONCE, _CORES_EACH, _GPU_BYTES_EACH = 4, 3, 20 * 2**30
"""Each process holds memory of the GPU for itself, which a small slice has no room for four times."""


class SubprocessCompiler:
    """`Compile` for the regions of one model put together by passes; of several threads, `at_once`."""

    def __init__(self, model: Model, passes: Sequence[str], at_once: int = 1) -> None:
        self._about = {
            "architecture": model.architecture.as_dict(),
            "passes": list(passes),
            "precision": precision_name(model.dtype),
            "device": str(model.device),
        }
        processes = [_Process() for _ in range(at_once)]
        self._free: SimpleQueue[_Process] = SimpleQueue()
        for each in processes:
            self._free.put(each)
        # Neither the processes nor their files outlive this object or this program.
        self.end = finalize(self, _end, processes)
        """Stop at once, whatever is being compiled."""

    def __call__(self, order: CompileRequest) -> Path:
        process = self._free.get()
        try:
            return self._made_by(process, order)
        finally:
            self._free.put(process)

    def _made_by(self, process: _Process, order: CompileRequest) -> Path:
        path = process.place / f"{order.signature}{SUFFIX}"
        written = {
            **self._about,
            "signature": order.signature,
            "region": order.region.name,
            "inputs": [None if form is None else _written(form) for form in order.forms],
            "path": str(path),
        }
        error = json.loads(process.answer(json.dumps(written)))["error"]
        if error:
            raise CalotypeError(error)
        return path


def _end(processes: Sequence[_Process]) -> None:
    for each in processes:
        each.end()


def max_parallel_compiles(device: torch.device) -> int:
    """How many regions to compile at a time. On a CPU pictures need the cores themselves."""
    if device.type == "cpu":
        return 1
    by_cores = len(os.sched_getaffinity(0)) // _CORES_EACH
    by_memory = torch.cuda.get_device_properties(device).total_memory // _GPU_BYTES_EACH
    return max(1, min(_MOST_AT_ONCE, by_cores, by_memory))


def _written(form: RegionSignature) -> dict[str, Any]:
    return {"shape": form.shape, "stride": form.stride, "dtype": str(form.dtype).removeprefix("torch.")}


def _folder() -> tuple[Path, FileLock]:
    """A folder with a lock that is held as long as it is used; those that nobody uses any more go.

    A process that is killed, or ends at once as workers do, leaves its own.
    """
    for left in Path(gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError, Timeout):
            if left.parent.lstat().st_uid == os.getuid():
                with FileLock(left, timeout=0):
                    rmtree(left.parent, ignore_errors=True)
    # Found by others from when its lock is held.
    hidden = Path(mkdtemp(prefix=f".{_PREFIX}"))
    lock = FileLock(hidden / _LOCK, thread_local=False)
    lock.acquire()
    return hidden.rename(hidden.with_name(hidden.name[1:])), lock


class _Process:
    """Another process that answers lines, and a place for files."""

    def __init__(self) -> None:
        self.place, self._lock = _folder()
        self._child: subprocess.Popen[str] | None = None
        self._ended = False

    def answer(self, line: str) -> str:
        """One line for one line. The process ends when it has had nothing to do for a while: then another."""
        for _ in range(2):
            child = self._running()
            assert child.stdin
            assert child.stdout
            with suppress(BrokenPipeError):
                child.stdin.write(line + "\n")
                child.stdin.flush()
                if answer := child.stdout.readline():
                    return answer
            if child.wait() != 0:
                break
        if self._ended:
            raise CompileAbandonedError
        said = (self.place / "log").read_text("utf-8", errors="replace")[-300:]
        if child.returncode == -SIGSEGV:
            raise CalotypeError(f"the compiler crashed, or what it made when it was loaded; {OTHER_COMPILER}")
        raise CalotypeError(f"the compiler ended with {child.returncode}: {said}")

    def end(self) -> None:
        self._ended = True
        if self._child is not None:
            if self._child.poll() is None:
                os.killpg(self._child.pid, SIGKILL)
            self._child.communicate()
        self._lock.release()
        rmtree(self.place, ignore_errors=True)

    def _running(self) -> subprocess.Popen[str]:
        if self._ended:
            raise CompileAbandonedError
        if self._child is not None and self._child.poll() is not None:
            self._child.communicate()  # closes what led to it
            self._child = None
        if self._child is None:
            with (self.place / "log").open("w") as log:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "calotype.engine.compile.worker_process"],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    # With the compilers that it starts: they end together.
                    process_group=0,
                )
        return self._child
