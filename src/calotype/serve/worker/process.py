"""A worker as the server holds it: a process and a channel. Knows nothing of what is said over it."""

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
    # Only one end is handed on, so that the other closes when this process ends, however it does.
    with ExitStack() as unless_started, theirs:
        unless_started.callback(ours.close)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Not from whatever folder this process was started in.
            *("-P", "-m", "calotype.serve.worker", f"--fd={theirs.fileno()}", *options.as_arguments()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=STANDARD_ERROR if log is None else log,
            stderr=log,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, **(environment or {})},
        )
        unless_started.pop_all()
    return WorkerProcess(await AsyncChannel.over(ours, FROM_WORKER), process)
