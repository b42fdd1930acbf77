"""Starts a worker process; the handle has the process and its channel."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from calotype.serve.ipc.channel import AsyncChannel
from calotype.serve.ipc.messages import FROM_WORKER, FromWorker
from calotype.serve.worker.options import WorkerOptions

STANDARD_ERROR = 2


@dataclass(frozen=True)
class WorkerProcess:
    """A started worker. It ends when its channel closes or this process ends."""

    channel: AsyncChannel[FromWorker]
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_status(self) -> int | None:
        """The result of `wait`; None while it runs."""
        return self.process.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.exit_status is None:
            self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.exit_status is None:
            self.process.kill()

    async def wait(self) -> int:
        """Wait for the exit status: 0 if the channel was closed, the negative number of a signal."""
        return await self.process.wait()


async def start_worker(
    options: WorkerOptions,
    *,
    log: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> WorkerProcess:
    """Start a worker; it sends Hello once its models are loaded.

    It writes its log as JSON lines to `log`, by default to this process's standard error. `environment` is
    added to this process's environment: CUDA_VISIBLE_DEVICES selects a GPU or a MIG slice.
    """
    server_end, worker_end = socket.socketpair()
    # The worker inherits only one end, so the other closes whenever this process ends.
    with ExitStack() as on_failure, worker_end:
        on_failure.callback(server_end.close)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # -P: do not import modules from the current directory.
            *("-P", "-m", "calotype.serve.worker", f"--fd={worker_end.fileno()}", *options.as_arguments()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=STANDARD_ERROR if log is None else log,
            stderr=log,
            pass_fds=(worker_end.fileno(),),
            env={**os.environ, **(environment or {})},
        )
        on_failure.pop_all()
    return WorkerProcess(await AsyncChannel.over(server_end, FROM_WORKER), process)
