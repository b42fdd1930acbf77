"""The targets of a load: a temporary or a running deployment, and the baseline server.

Everything started here is stopped here, also after Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from calotype.core.errors import CalotypeError
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint, running_deployment

_SHUT_DOWN_S = 10.0
_LAST_LINES = 15

Tell = Callable[[str], None]


class BaselineServerError(CalotypeError):
    """The baseline server did not start."""


@dataclass(frozen=True)
class Target:
    """A running deployment."""

    plan: DeploymentConfig
    running: Endpoint
    load_s: float | None
    """Duration of its start; None if it was running already."""


def known_deployment(name: str) -> Target:
    """Return a deployment that is already running."""
    place, running = running_deployment(name)
    return Target(place.plan(), running, None)


@contextmanager
def temporary_deployment(plan: DeploymentConfig, tell: Tell) -> Iterator[Target]:
    """Start a deployment in a temporary folder, and stop it afterwards."""
    with tempfile.TemporaryDirectory(prefix="calotype-bench-") as folder:
        place = DeploymentDir(Path(folder) / plan.name)
        began = time.monotonic()
        running = deploy(plan, tell, place)
        try:
            yield Target(plan, running, time.monotonic() - began)
        finally:
            with _signals_ignored():
                stop(running, at_once=True)


@contextmanager
def baseline_server(
    model: str, device: str | None, precision: str | None, models_folder: Path | None
) -> Iterator[str]:
    """Start the baseline server and yield its URL once it responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening, tempfile.TemporaryFile() as log:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        options = {"device": device, "precision": precision, "models-folder": models_folder}
        arguments = [f"--{name}={value}" for name, value in options.items() if value is not None]
        fd = str(listening.fileno())
        command = [
            sys.executable,
            "-m",
            "calotype.bench.serve.baseline_server",
            "--fd",
            fd,
            *arguments,
            model,
        ]
        process = subprocess.Popen(  # noqa: S603 - our own module, and no shell
            command,
            pass_fds=(listening.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # This process handles Ctrl-C.
            start_new_session=True,
        )
        # Only the server holds the socket from now on, so that connections fail if it dies.
        listening.close()
        try:
            try:
                httpx.get(f"{url}/healthz", timeout=600, trust_env=False).raise_for_status()
            except httpx.HTTPError as error:
                log.seek(0)
                lines = log.read().decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
                raise BaselineServerError(
                    "\n  ".join([f"the baseline server ended: {error}", *lines])
                ) from None
            yield url
        finally:
            with _signals_ignored():
                _terminate(process)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_SHUT_DOWN_S)
    process.kill()
    process.wait()


@contextmanager
def stoppable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that started processes are stopped."""

    def interrupt(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore further signals, so that a second Ctrl-C does not leave a process behind."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
