"""Starts deployments in the background and stops them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from select import POLLIN, poll
from typing import IO

from calotype.core.errors import CalotypeError, NotFoundError
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.plan_checks import check_plan
from calotype.serve.lifecycle.readiness_notifier import ReadinessMessage, read_messages
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint, deployment_dir

LAST_LINES = 20
_END_TIMEOUT_S = 10
"""How long a failed server may take to end."""


class DeployError(CalotypeError):
    """The deployment ended before it was ready."""


def deploy(
    plan: DeploymentConfig,
    report: Callable[[str], None] = lambda _: None,
    directory: DeploymentDir | None = None,
) -> Endpoint:
    """Start a deployment that outlives this process; returns when it is ready.

    It is stored in `directory`, by default the one of its name.
    """
    directory = directory or deployment_dir(plan.name)
    check_plan(plan, directory)
    # The server inherits the lock. If the start fails, the earlier plan is restored.
    with directory.held() as held, directory.trying(plan) as confirm, _started(directory, held) as pipe:
        running = _when_ready(directory, pipe, report)
        confirm()
        return running


def _started(directory: DeploymentDir, held: int) -> IO[str]:
    """Start the server, which inherits the lock; returns the pipe with its messages."""
    ours, theirs = os.pipe()
    server = [sys.executable, "-m", "calotype.serve.lifecycle", str(directory.folder)]
    try:
        with directory.log.open("ab") as log:
            # Not a child, and in its own session: neither this process nor a closed terminal can end it.
            subprocess.run(  # noqa: S603 - our own module, and no shell
                ["setsid", "--fork", *server, f"--news-fd={theirs}", f"--held-fd={held}"],  # noqa: S607 - part of every Linux
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs, held),
            )
    except KeyboardInterrupt:
        # The server may have started although `setsid` has not returned yet.
        os.close(theirs)
        with os.fdopen(ours, encoding="utf-8") as pipe:
            _abort_start(None, pipe)
        raise
    except BaseException:
        os.close(theirs)
        os.close(ours)
        raise
    os.close(theirs)
    return os.fdopen(ours, encoding="utf-8")


def _when_ready(directory: DeploymentDir, pipe: IO[str], report: Callable[[str], None]) -> Endpoint:
    pid: int | None = None
    try:
        for message in read_messages(pipe):
            match message.kind:
                case "begun":
                    pid = int(message.text)
                case "ready":
                    running = directory.running()
                    assert running is not None, "a ready deployment has stored its endpoint"
                    return running
                case "failed":
                    _wait_for_end(pid)
                    raise DeployError(f"{directory.name!r} could not start: {message.text}")
                case _:
                    report(message.text)
    except KeyboardInterrupt:
        _abort_start(pid, pipe)
        raise
    raise DeployError(f"{directory.name!r} ended before it was ready\n{_end_of_log(directory)}")


def _wait_for_end(pid: int | None) -> None:
    """Wait until a failed server has released its lock and ports, so that another can start."""
    if pid is None:
        return
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poller = poll()
    poller.register(pidfd, POLLIN)
    poller.poll(1000 * _END_TIMEOUT_S)
    os.close(pidfd)


def _abort_start(pid: int | None, pipe: IO[str]) -> None:
    """Stop a server before it is ready, once it has sent its process id."""
    while pid is None:
        message = next(read_messages(pipe), ReadinessMessage("failed"))
        if message.kind == "failed":
            return
        pid = int(message.text) if message.kind == "begun" else None
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    # The server closes the pipe when it stops; its process ends a moment later.
    pipe.read()
    _wait_for_end(pid)


def undeploy(directory: DeploymentDir, *, at_once: bool = False, purge: bool = False) -> None:
    """Stop a deployment; with `purge`, delete its queue, history and images too."""
    running = directory.running()
    if running is not None:
        stop(running, at_once=at_once)
    elif not purge:
        raise NotFoundError(f"deployment {directory.name!r} does not run; --purge deletes it")
    if purge:
        with directory.held():
            shutil.rmtree(directory.folder)


def stop(running: Endpoint, *, at_once: bool) -> None:
    """Ask it to drain, or to stop at once, and wait until it has poller."""
    try:
        pidfd = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return
    try:
        # The process id may have been reused between reading and opening it.
        if not running.alive:
            return
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if at_once:
            # A different signal: of two equal pending signals the second would be lost.
            signal.pidfd_send_signal(pidfd, signal.SIGINT)
        poller = poll()
        poller.register(pidfd, POLLIN)
        poller.poll()
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def _end_of_log(directory: DeploymentDir) -> str:
    lines: Sequence[str] = directory.log.read_text("utf-8", errors="replace").splitlines()
    return "\n".join([f"the end of {directory.log}:", *(f"  {line}" for line in lines[-LAST_LINES:])])
