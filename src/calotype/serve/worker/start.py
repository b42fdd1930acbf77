"""A worker as the server holds it: a process and a channel. Knows nothing of what is said over it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from calotype.serve.messages import FROM_WORKER, FromWorker
from calotype.serve.worker.channel import AsyncChannel
from calotype.serve.worker.options import WorkerOptions


@dataclass(frozen=True)
class WorkerProcess:
    """A worker that was started. Closing its channel ends it; so does the end of this process."""

    channel: AsyncChannel[FromWorker]
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_status(self) -> int | None:
        """As `wait` says it; None while it runs."""
        return self.process.returncode

    def terminate(self) -> None:
        """End it at once, if it listens to signals at all."""
        if self.exit_status is None:
            self.process.terminate()

    def kill(self) -> None:
        """End it whatever it does."""
        if self.exit_status is None:
            self.process.kill()

    async def wait(self) -> int:
        """Its exit status once it has ended: 0 when the channel was closed, a signal's number below 0."""
        return await self.process.wait()


async def start_worker(
    options: WorkerOptions,
    *,
    log: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> WorkerProcess:
    """Start a worker; it says Hello once its models are loaded.

    Its log, lines of JSON, goes to `log`, or to this process's own standard error. `environment` is added to
    this process's: CUDA_VISIBLE_DEVICES chooses a GPU or a slice of one.
    """
    ours, theirs = socket.socketpair()
    # Only this end is handed on, so that its other end closes when this process ends, however it does.
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "calotype.serve.worker", f"--fd={theirs.fileno()}", *options.as_arguments()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log if log is not None else sys.stderr.fileno(),
            stderr=log,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, **(environment or {})},
        )
    return WorkerProcess(await AsyncChannel.over(ours, FROM_WORKER), process)
