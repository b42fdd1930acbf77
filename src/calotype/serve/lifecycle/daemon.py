"""Starting a deployment in the background, and stopping it. Knows nothing of what it serves."""

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
_LAST_S = 10
"""What a server that has failed has to end in."""


class DeployError(CalotypeError):
    """A deployment that ended before it was ready."""


def deploy(
    plan: DeploymentConfig, tell: Callable[[str], None] = lambda _: None, place: DeploymentDir | None = None
) -> Endpoint:
    """Start a deployment that outlives this process; returns when it is ready.

    It is kept in `place`, or where its name leads to.
    """
    place = place or deployment_dir(plan.name)
    check_plan(plan, place)
    # Held until it is ready, together with the server: where the start fails, the plan before is put back.
    with place.held() as held, place.trying(plan) as confirm, _started(place, held) as pipe:
        running = _when_ready(place, pipe, tell)
        confirm()
        return running


def _started(place: DeploymentDir, held: int) -> IO[str]:
    """Start its server, which holds the place from then on; what it tells comes out of the pipe."""
    ours, theirs = os.pipe()
    server = [sys.executable, "-m", "calotype.serve.lifecycle", str(place.folder)]
    try:
        with place.log.open("ab") as log:
            # Not our child, and in a session of its own: neither we nor a closed terminal are anything to it.
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
            _call_off(None, pipe)
        raise
    except BaseException:
        os.close(theirs)
        os.close(ours)
        raise
    os.close(theirs)
    return os.fdopen(ours, encoding="utf-8")


def _when_ready(place: DeploymentDir, pipe: IO[str], tell: Callable[[str], None]) -> Endpoint:
    pid: int | None = None
    try:
        for told in read_messages(pipe):
            match told.kind:
                case "begun":
                    pid = int(told.text)
                case "ready":
                    running = place.running()
                    assert running is not None, "a ready deployment has said where it is"
                    return running
                case "failed":
                    _see_out(pid)
                    raise DeployError(f"{place.name!r} could not start: {told.text}")
                case _:
                    tell(told.text)
    except KeyboardInterrupt:
        _call_off(pid, pipe)
        raise
    raise DeployError(f"{place.name!r} ended before it was ready\n{_end_of_log(place)}")


def _see_out(pid: int | None) -> None:
    """Wait until a server that could not start has let go of its place and ports, so that another can try."""
    if pid is None:
        return
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = poll()
    ended.register(watched, POLLIN)
    ended.poll(1000 * _LAST_S)
    os.close(watched)


def _call_off(pid: int | None, pipe: IO[str]) -> None:
    """Stop a server before it is ready. One that has not said yet who it is does so soon, or ends."""
    while pid is None:
        told = next(read_messages(pipe), ReadinessMessage("failed"))
        if told.kind == "failed":
            return
        pid = int(told.text) if told.kind == "begun" else None
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    # The server closes the pipe when it stops; its process ends a moment later.
    pipe.read()
    _see_out(pid)


def undeploy(place: DeploymentDir, *, at_once: bool = False, purge: bool = False) -> None:
    """Stop a deployment; with `purge`, forget its queue, history and pictures too."""
    running = place.running()
    if running is not None:
        stop(running, at_once=at_once)
    elif not purge:
        raise NotFoundError(f"deployment {place.name!r} does not run; --purge forgets it")
    if purge:
        with place.held():
            shutil.rmtree(place.folder)


def stop(running: Endpoint, *, at_once: bool) -> None:
    """Ask it to drain, or to leave at once, and wait until it has."""
    try:
        watched = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return
    try:
        # The number may have gone to another process between looking and opening.
        if not running.alive:
            return
        signal.pidfd_send_signal(watched, signal.SIGTERM)
        if at_once:
            # Another one: of two that are the same the second is lost, if the first has not been heard yet.
            signal.pidfd_send_signal(watched, signal.SIGINT)
        ended = poll()
        ended.register(watched, POLLIN)
        ended.poll()
    except ProcessLookupError:
        return
    finally:
        os.close(watched)


def _end_of_log(place: DeploymentDir) -> str:
    lines: Sequence[str] = place.log.read_text("utf-8", errors="replace").splitlines()
    return "\n".join([f"the end of {place.log}:", *(f"  {line}" for line in lines[-LAST_LINES:])])
