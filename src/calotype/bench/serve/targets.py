"""What a load is put on: a deployment of our own or one that runs, and a plain server beside it.

Whatever is started here is stopped here, also after Ctrl-C and SIGTERM. Knows nothing of loads.
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
    """The plain server did not come up."""


@dataclass(frozen=True)
class Target:
    """A deployment that runs."""

    plan: DeploymentConfig
    running: Endpoint
    load_s: float | None
    """What its start took; None if it ran already."""


def known_deployment(name: str) -> Target:
    """One that was deployed by somebody."""
    place, running = running_deployment(name)
    return Target(place.plan(), running, None)


@contextmanager
def temporary_deployment(plan: DeploymentConfig, tell: Tell) -> Iterator[Target]:
    """One in a folder of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="calotype-bench-") as folder:
        place = DeploymentDir(Path(folder) / plan.name)
        began = time.monotonic()
        running = deploy(plan, tell, place)
        try:
            yield Target(plan, running, time.monotonic() - began)
        finally:
            with _undisturbed():
                stop(running, at_once=True)


@contextmanager
def baseline_server(
    model: str, device: str | None, precision: str | None, models_folder: Path | None
) -> Iterator[str]:
    """The URL of a plain server, once it answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening, tempfile.TemporaryFile() as log:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        options = {"device": device, "precision": precision, "models-folder": models_folder}
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        fd = str(listening.fileno())
        command = [sys.executable, "-m", "calotype.bench.serve.baseline_server", "--fd", fd, *given, model]
        process = subprocess.Popen(  # noqa: S603 - our own module, and no shell
            command,
            pass_fds=(listening.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is ours to handle.
            start_new_session=True,
        )
        # From now on only the server has it: whoever asks hears when it dies.
        listening.close()
        try:
            try:
                httpx.get(f"{url}/healthz", timeout=600, trust_env=False).raise_for_status()
            except httpx.HTTPError as error:
                log.seek(0)
                lines = log.read().decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
                raise BaselineServerError("\n  ".join([f"the plain server ended: {error}", *lines])) from None
            yield url
        finally:
            with _undisturbed():
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_SHUT_DOWN_S)
    process.kill()
    process.wait()


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C is, so that what was started is stopped."""

    def interrupt(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave a process behind."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
