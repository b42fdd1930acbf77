"""What is rendered: a program that takes nodes of a Ray cluster, runs a command on each, prints their lines.

Knows nothing of Calotype: all that a job says of itself stands between the two marks, where these are an
example's. Killed with its job by Ray, it leaves nothing behind.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

# What is run.
NAME = "example"
NODES = 1
# Of a node.
NEEDS: dict[str, float] = {"CPU": 1}
# torchrun, where there is one, and where its nodes meet.
TORCHRUN: list[str] = []
# 0 is any that is free.
PORT = 0
COMMAND: list[str] = ["true"]
ENVIRONMENT: dict[str, str] = {}
DIRECTORY: str | None = None
# Counted from when the nodes are there.
TIME_LIMIT_S: int | None = None
# For saving, once it is told to stop.
GRACE_S = 120
# Begin again when a node is lost.
REQUEUE = True
# How it is run.

TASK = sys.argv[1] if len(sys.argv) > 1 else ""
TIMED_OUT, STOPPED, LOST = 124, 143, 75
LOOK_S = 0.5
# torchrun gives its processes their grace and kills them itself: killed before that, it could not.
TIMEOUT_S = GRACE_S + (15 if TORCHRUN else 0)
stopped = threading.Event()


class Node:
    """One node's part of the job."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def meeting_place(self) -> str:
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{PORT or free.getsockname()[1]}"

    def run(self, meeting_place: str, task: str) -> Iterator[str | int]:
        """Lines, and at last the exit code."""
        # Told to stop when Ray's process that started it has gone, however that came.
        words = ["setpriv", "--pdeathsig=TERM"]
        words += [word.replace("{meeting_place}", meeting_place) for word in TORCHRUN]
        words += [word.replace("{task}", task) for word in COMMAND]
        # Ray says how many threads to use, of one process; here are several.
        inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.process = subprocess.Popen(  # noqa: S603 - it is what the job is
            words,
            cwd=DIRECTORY,
            env={**inherited, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for line in self.process.stdout or ():
            yield line.rstrip("\n")
        code = self.process.wait()
        yield code if code >= 0 else 128 - code

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()


def say(line: str) -> None:
    # With its end in one piece: several threads print.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    ray.init(log_to_driver=False, logging_level="WARNING")
    # After Ray, which would take it for itself.
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    for attempt in itertools.count():
        code = attempted(attempt)
        if code != LOST or not REQUEUE or stopped.is_set():
            return code
        say(f"{NAME}: begins again on other nodes")
    return LOST


def attempted(attempt: int) -> int:
    """The exit code of one try on nodes that are all there at once."""
    nodes: list[Any] = []
    # The name says which try it is to who asks the cluster.
    group = placement_group([NEEDS] * NODES, strategy="STRICT_SPREAD", name=f"{NAME}#{attempt}")
    try:
        while not group.wait(timeout_seconds=1):
            if stopped.is_set():
                return STOPPED
        nodes += [node_of(group, place) for place in range(NODES)]
        meeting_place = ray.get(nodes[0].meeting_place.remote())
        say(f"{NAME}: runs on {NODES} of the cluster's nodes, which meet at {meeting_place}")
        return finished(nodes, meeting_place)
    except RayError as error:
        say(f"{NAME}: {error}")
        return LOST
    finally:
        for node in nodes:
            ray.kill(node)
        remove_placement_group(group)


def node_of(group: Any, place: int) -> Any:
    needs = dict(NEEDS)
    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
    asked = ray.remote(Node).options(
        num_cpus=needs.pop("CPU", 0),
        num_gpus=needs.pop("GPU", 0),
        memory=needs.pop("memory", None),
        resources=needs,
        scheduling_strategy=where,
        max_concurrency=2,
    )
    return asked.remote()


def finished(nodes: list[Any], meeting_place: str) -> int:
    """Wait for all nodes; one that fails ends the others, as do a signal and the time limit."""
    codes: dict[int, int] = {}
    readers = [
        threading.Thread(target=follow, args=(node, place, meeting_place, codes), daemon=True)
        for place, node in enumerate(nodes)
    ]
    for reader in readers:
        reader.start()
    began, told_at, why = time.monotonic(), None, 0
    while len(codes) < len(nodes):
        time.sleep(LOOK_S)
        now = time.monotonic()
        if told_at is not None:
            if now > told_at + TIMEOUT_S:
                say(f"{NAME}: did not end within {TIMEOUT_S} s, and is killed")
                return why
            continue
        failed = [code for code in list(codes.values()) if code]
        over = TIME_LIMIT_S is not None and now > began + TIME_LIMIT_S - GRACE_S
        why = STOPPED if stopped.is_set() else failed[0] if failed else TIMED_OUT if over else 0
        if why:
            told_at = now
            for node in nodes:
                node.stop.remote()
    if LOST in codes.values() and why not in (STOPPED, TIMED_OUT):
        # What the others say then, they say because of it.
        return LOST
    return why or next((code for code in codes.values() if code), 0)


def follow(node: Any, place: int, meeting_place: str, codes: dict[int, int]) -> None:
    code = LOST
    try:
        for said in node.run.options(num_returns="streaming").remote(meeting_place, TASK):
            heard = ray.get(said)
            if isinstance(heard, int):
                code = heard
            else:
                say(heard)
    except RayError as error:
        say(f"{NAME}: node {place} is lost: {str(error).splitlines()[0]}")
    codes[place] = code


if __name__ == "__main__":
    sys.exit(main())
