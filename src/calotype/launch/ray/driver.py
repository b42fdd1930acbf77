"""The rendered driver: reserves nodes of a Ray cluster, runs a command on each, and prints their output.

It does not import Calotype: the job's values are between the two marker comments; those below are an
example's. When Ray kills it with its job, no process remains.
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
# Per node.
NEEDS: dict[str, float] = {"CPU": 1}
# torchrun, if used, with its rendezvous endpoint.
TORCHRUN: list[str] = []
# 0 for any free port.
PORT = 0
COMMAND: list[str] = ["true"]
ENVIRONMENT: dict[str, str] = {}
DIRECTORY: str | None = None
# Counted from when the nodes are reserved.
TIME_LIMIT_S: int | None = None
# For saving, after SIGTERM.
GRACE_S = 120
# Restart when a node is lost.
REQUEUE = True
# How it is run.

TASK = sys.argv[1] if len(sys.argv) > 1 else ""
TIMED_OUT, STOPPED, LOST = 124, 143, 75
POLL_S = 0.5
# torchrun gives its processes the grace period and kills them itself; it must not be killed before that.
TIMEOUT_S = GRACE_S + (15 if TORCHRUN else 0)
stopped = threading.Event()


class Node:
    """One node's part of the job."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def rdzv_endpoint(self) -> str:
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{PORT or free.getsockname()[1]}"

    def run(self, rdzv_endpoint: str, task: str) -> Iterator[str | int]:
        """Yield output lines, and at the end the exit code."""
        # SIGTERM when Ray's process that started it ends for any reason.
        words = ["setpriv", "--pdeathsig=TERM"]
        words += [word.replace("{rdzv_endpoint}", rdzv_endpoint) for word in TORCHRUN]
        words += [word.replace("{task}", task) for word in COMMAND]
        # Ray sets the number of threads for one process; here there are several.
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
    # One write with the line end: several threads print.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    ray.init(log_to_driver=False, logging_level="WARNING")
    # After ray.init, which installs a handler of its own.
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    for attempt in itertools.count():
        code = run_attempt(attempt)
        if code != LOST or not REQUEUE or stopped.is_set():
            return code
        say(f"{NAME}: restarts on other nodes")
    return LOST


def run_attempt(attempt: int) -> int:
    """The exit code of one attempt on nodes that are all reserved at once."""
    nodes: list[Any] = []
    # The name holds the attempt's number, for status queries.
    group = placement_group([NEEDS] * NODES, strategy="STRICT_SPREAD", name=f"{NAME}#{attempt}")
    try:
        while not group.wait(timeout_seconds=1):
            if stopped.is_set():
                return STOPPED
        nodes += [node_of(group, index) for index in range(NODES)]
        rdzv_endpoint = ray.get(nodes[0].rdzv_endpoint.remote())
        say(f"{NAME}: runs on {NODES} of the cluster's nodes, rendezvous at {rdzv_endpoint}")
        return wait_for_nodes(nodes, rdzv_endpoint)
    except RayError as error:
        say(f"{NAME}: {error}")
        return LOST
    finally:
        for node in nodes:
            ray.kill(node)
        remove_placement_group(group)


def node_of(group: Any, index: int) -> Any:
    needs = dict(NEEDS)
    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    actor = ray.remote(Node).options(
        num_cpus=needs.pop("CPU", 0),
        num_gpus=needs.pop("GPU", 0),
        memory=needs.pop("memory", None),
        resources=needs,
        scheduling_strategy=where,
        max_concurrency=2,
    )
    return actor.remote()


def wait_for_nodes(nodes: list[Any], rdzv_endpoint: str) -> int:
    """Wait for all nodes; a failed node stops the others, as do a signal and the time limit."""
    codes: dict[int, int] = {}
    readers = [
        threading.Thread(target=follow, args=(node, index, rdzv_endpoint, codes), daemon=True)
        for index, node in enumerate(nodes)
    ]
    for reader in readers:
        reader.start()
    began, stopped_at, why = time.monotonic(), None, 0
    while len(codes) < len(nodes):
        time.sleep(POLL_S)
        now = time.monotonic()
        if stopped_at is not None:
            if now > stopped_at + TIMEOUT_S:
                say(f"{NAME}: did not exit within {TIMEOUT_S} s, and is killed")
                return why
            continue
        failed = [code for code in list(codes.values()) if code]
        over = TIME_LIMIT_S is not None and now > began + TIME_LIMIT_S - GRACE_S
        why = STOPPED if stopped.is_set() else failed[0] if failed else TIMED_OUT if over else 0
        if why:
            stopped_at = now
            for node in nodes:
                node.stop.remote()
    if LOST in codes.values() and why not in (STOPPED, TIMED_OUT):
        # Errors of the other nodes are consequences of the lost one.
        return LOST
    return why or next((code for code in codes.values() if code), 0)


def follow(node: Any, index: int, rdzv_endpoint: str, codes: dict[int, int]) -> None:
    code = LOST
    try:
        for reference in node.run.options(num_returns="streaming").remote(rdzv_endpoint, TASK):
            item = ray.get(reference)
            if isinstance(item, int):
                code = item
            else:
                say(item)
    except RayError as error:
        say(f"{NAME}: node {index} is lost: {str(error).splitlines()[0]}")
    codes[index] = code


if __name__ == "__main__":
    sys.exit(main())
