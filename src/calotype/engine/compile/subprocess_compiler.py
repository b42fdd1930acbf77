"""Compiles regions in subprocesses, so that running requests are hardly affected.

Compiling takes minutes of CPU time, holds the GIL for seconds at a time, and patches modules while it traces
them.
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
_MAX_PARALLEL, _CORES_PER_PROCESS, _GPU_BYTES_PER_PROCESS = 4, 3, 20 * 2**30
"""Each process has its own GPU memory; a small MIG slice has too little for four."""


class SubprocessCompiler:
    """Compiles the regions of one model and its passes, from up to `at_once` threads."""

    def __init__(self, model: Model, passes: Sequence[str], at_once: int = 1) -> None:
        self._about = {
            "architecture": model.architecture.as_dict(),
            "passes": list(passes),
            "precision": precision_name(model.dtype),
            "device": str(model.device),
        }
        processes = [_Process() for _ in range(at_once)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for each in processes:
            self._idle.put(each)
        # Neither the processes nor their files outlive this object or the program.
        self.end = finalize(self, _end_all, processes)
        """Stop immediately, including running compilations."""

    def __call__(self, request: CompileRequest) -> Path:
        process = self._idle.get()
        try:
            return self._compile_with(process, request)
        finally:
            self._idle.put(process)

    def _compile_with(self, process: _Process, request: CompileRequest) -> Path:
        path = process.folder / f"{request.signature}{SUFFIX}"
        values = {
            **self._about,
            "signature": request.signature,
            "region": request.region.name,
            "inputs": [None if form is None else _signature_values(form) for form in request.forms],
            "path": str(path),
        }
        error = json.loads(process.answer(json.dumps(values)))["error"]
        if error:
            raise CalotypeError(error)
        return path


def _end_all(processes: Sequence[_Process]) -> None:
    for each in processes:
        each.end()


def max_parallel_compiles(device: torch.device) -> int:
    """Number of regions to compile in parallel. On a CPU inference needs the cores itself."""
    if device.type == "cpu":
        return 1
    by_cores = len(os.sched_getaffinity(0)) // _CORES_PER_PROCESS
    by_memory = torch.cuda.get_device_properties(device).total_memory // _GPU_BYTES_PER_PROCESS
    return max(1, min(_MAX_PARALLEL, by_cores, by_memory))


def _signature_values(form: RegionSignature) -> dict[str, Any]:
    return {"shape": form.shape, "stride": form.stride, "dtype": str(form.dtype).removeprefix("torch.")}


def _create_folder() -> tuple[Path, FileLock]:
    """Create a folder with a lock that is held while it is in use; remove folders that are not in use.

    A process that is killed, or exits without cleanup as workers do, leaves its folder.
    """
    for old_lock in Path(gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError, Timeout):
            if old_lock.parent.lstat().st_uid == os.getuid():
                with FileLock(old_lock, timeout=0):
                    rmtree(old_lock.parent, ignore_errors=True)
    # Hidden from other processes until its lock is held.
    hidden = Path(mkdtemp(prefix=f".{_PREFIX}"))
    lock = FileLock(hidden / _LOCK, thread_local=False)
    lock.acquire()
    return hidden.rename(hidden.with_name(hidden.name[1:])), lock


class _Process:
    """A worker process that answers lines, and a folder for its files."""

    def __init__(self) -> None:
        self.folder, self._lock = _create_folder()
        self._child: subprocess.Popen[str] | None = None
        self._ended = False

    def answer(self, line: str) -> str:
        """Send one line, return one line. A process that exited because it was idle is started again."""
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
        log = (self.folder / "log").read_text("utf-8", errors="replace")[-300:]
        if child.returncode == -SIGSEGV:
            raise CalotypeError(f"the compiler crashed, or its output when it was loaded; {OTHER_COMPILER}")
        raise CalotypeError(f"the compiler exited with code {child.returncode}: {log}")

    def end(self) -> None:
        self._ended = True
        if self._child is not None:
            if self._child.poll() is None:
                os.killpg(self._child.pid, SIGKILL)
            self._child.communicate()
        self._lock.release()
        rmtree(self.folder, ignore_errors=True)

    def _running(self) -> subprocess.Popen[str]:
        if self._ended:
            raise CompileAbandonedError
        if self._child is not None and self._child.poll() is not None:
            self._child.communicate()  # closes its pipes
            self._child = None
        if self._child is None:
            with (self.folder / "log").open("w") as log:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "calotype.engine.compile.worker_process"],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    # One group with the compilers that it starts: they are killed together.
                    process_group=0,
                )
        return self._child
