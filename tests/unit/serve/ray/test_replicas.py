"""Replicas on two nodes: nothing is lost with a node, and as many are there as the queue wants."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import calotype
from calotype.cli.main import run
from calotype.core.errors import RequestError
from calotype.serve.client import Client
from calotype.serve.lifecycle.registry import running_deployment
from calotype.serve.ray.settings import ClusterSettings
from calotype.serve.service import UnavailableError
from calotype.spec.generate_request import GenerateRequest
from tests.faults.checks import all_jobs, check_log, check_pictures
from tests.polling import until
from tests.unit.serve.ray.conftest import CPUS, Nodes

NAME = "crowd"
STEPS = 60
"""Of 20 ms each: long enough to be met at work."""


def deployed(nodes: Nodes, **cluster: Any) -> Client:
    """With an engine that does nothing, so that all else shows."""
    plan = {"address": nodes.address, "gpus_per_replica": 0.0, **cluster}
    return calotype.deploy("emoji", name=NAME, engine="nothing", cluster=plan, drain_s=5.0)


def fixed(number: int) -> dict[str, int]:
    return {"least": number, "most": number}


def loaded(client: Client, count: int, first: int = 0, steps: int = STEPS) -> list[str]:
    """Submit so many slow jobs, each with a seed and a key of its own."""
    return [
        client.submit("fault:slow", steps=steps, seed=number, idempotency_key=f"key-{number}")
        for number in range(first, first + count)
    ]


@contextmanager
def under_load(client: Client) -> Iterator[list[str]]:
    """Meanwhile, jobs are submitted as they are done; all that were accepted."""
    accepted: list[str] = []
    enough = Event()

    def keep_asking() -> None:
        while not enough.is_set():
            accepted.extend(loaded(client, 8, len(accepted), steps=15))
            until(lambda: unfinished(client) < 40, "the queue is worked off")

    asking = Thread(target=keep_asking)
    asking.start()
    try:
        yield accepted
    finally:
        enough.set()
        asking.join(120)
        assert not asking.is_alive()


def ready(client: Client) -> dict[str, int]:
    """Process numbers of the workers that are ready."""
    return {worker.name: worker.pid for worker in client.status().workers if worker.state == "ready"}


def unfinished(client: Client) -> int:
    status = client.status()
    return status.queued + status.running


def check_all_done(accepted: list[str]) -> list[dict[str, Any]]:
    """Each accepted job is there and done, once, with its own picture."""
    place, running = running_deployment(NAME)
    jobs = all_jobs(running)
    assert sorted(job["id"] for job in jobs) == sorted(accepted)
    assert {job["state"] for job in jobs} == {"done"}
    check_pictures(running, jobs)
    check_log(place, jobs)
    return jobs


def undeployed(nodes: Nodes) -> None:
    calotype.undeploy(NAME)
    until(lambda: not nodes.actors(), "no actor is left")


def test_a_node_killed_under_load_loses_nothing(nodes: Nodes) -> None:
    # So much that each node has room for one.
    with deployed(nodes, replicas=fixed(2), cpus_per_replica=CPUS - 1.0) as client:
        until(lambda: len(ready(client)) == 2, "both replicas are ready")
        there = {name: nodes.on_second(pid) for name, pid in ready(client).items()}
        assert sorted(there.values()) == [False, True], "one on each node"
        (lost,) = [name for name, second in there.items() if second]
        process = Path(f"/proc/{ready(client)[lost]}")
        accepted = loaded(client, 64)
        until(
            lambda: any(worker.name == lost and worker.jobs for worker in client.status().workers),
            "the second node has work",
        )
        nodes.kill_second()
        until(lambda: not process.exists(), "its worker ends too")
        accepted += loaded(client, 8, first=64)
        until(lambda: lost not in ready(client), "the loss is seen")
        until(lambda: unfinished(client) == 0, "the other replica has done it all")
        again = [job for job in check_all_done(accepted) if job["attempts"] > 1]
        assert again, "some were under way on the node that died"
        nodes.start_second()
        until(lambda: len(ready(client)) == 2, "a new node has a new replica")
        assert nodes.on_second(ready(client)[lost])
    undeployed(nodes)


def test_replicas_come_with_the_queue_and_go_with_it(nodes: Nodes) -> None:
    nodes.start_second()
    size = {"least": 1, "most": 2, "jobs_each": 10, "idle_s": 0.2, "look_s": 0.1}
    with deployed(nodes, replicas=size) as client:
        assert len(client.status().workers) == 1
        with under_load(client) as accepted:
            until(lambda: len(ready(client)) == 2, "a second replica for a long queue")
        until(lambda: unfinished(client) == 0, "all is done")
        until(lambda: len(client.status().workers) == 1, "one is enough for an empty queue")
        until(lambda: len(nodes.actors()) == 1, "the other has gone")
        check_all_done(accepted)
    undeployed(nodes)


def test_replicas_are_replaced_under_load(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.start_second()
    with deployed(nodes, replicas=fixed(2)) as client:
        until(lambda: len(ready(client)) == 2, "both replicas are ready")
        before = ready(client)
        with under_load(client) as accepted:
            assert run(["update", NAME, "fox"]) == 0
        assert "is updated" in capsys.readouterr().out
        after = ready(client)
        assert set(after) == set(before)
        assert not set(after.values()) & set(before.values())
        newest = client.submit("fault:slow", steps=1, seed=len(accepted))
        until(lambda: unfinished(client) == 0, "all is done")
        jobs = check_all_done([*accepted, newest])
        assert {job["attempts"] for job in jobs} == {1}, "nobody was interrupted"
        assert {job["id"]: job["model"] for job in jobs}[newest] == "fox"
        place, _ = running_deployment(NAME)
        assert place.plan().models == ("fox",)
    undeployed(nodes)


def test_parts_of_a_gpu_are_shared_and_a_full_cluster_says_so(nodes: Nodes) -> None:
    nodes.start_second()
    with deployed(nodes, replicas=fixed(3), gpus_per_replica=0.5) as client:
        until(lambda: len(ready(client)) == 2, "two share the one GPU")
        for pid in ready(client).values():
            assert nodes.on_second(pid), "where the GPU is"
            assert b"CUDA_VISIBLE_DEVICES=0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        (waiting,) = [worker for worker in client.status().workers if worker.state != "ready"]
        assert "waiting for a node with 1 CPU, 0.5 GPU free" in waiting.loading
    undeployed(nodes)


def test_replicas_end_with_their_server_and_jobs_do_not(nodes: Nodes) -> None:
    nodes.start_second()
    with deployed(nodes, replicas=fixed(2)) as client:
        accepted = loaded(client, 40)
        until(lambda: any(worker.jobs for worker in client.status().workers), "some are under way")
        workers = ready(client).values()
    _, running = running_deployment(NAME)
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: not nodes.actors(), "its actors end")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "their workers end")
    with deployed(nodes, replicas=fixed(1)) as client:
        until(lambda: unfinished(client) == 0, "what was accepted is done")
        _, running = running_deployment(NAME)
        assert {job["id"] for job in all_jobs(running) if job["state"] == "done"} == set(accepted)
    undeployed(nodes)


def test_the_picture_is_the_same_as_without_ray(nodes: Nodes) -> None:
    asked = GenerateRequest(prompt="a red apple", seed=7, steps=2, width=64, height=64)
    cluster = {"address": nodes.address}
    how: dict[str, Any] = {"devices": ("cpu",), "preset": "baseline"}
    with calotype.deploy("emoji", name=NAME, cluster=cluster, **how) as client:
        (there,) = client.query(asked).images
    undeployed(nodes)
    (here,) = calotype.load("emoji", device="cpu", preset="baseline").generate(asked).images
    assert there.tobytes() == here.tobytes()


def test_nobody_at_the_address_is_said_at_once() -> None:
    from calotype.serve.ray.cluster import connect

    with pytest.raises(UnavailableError, match=r"no Ray cluster answers at 127.0.0.1:1"):
        asyncio.run(connect(ClusterSettings(address="127.0.0.1:1")))
    with pytest.raises(RequestError, match="is not HOST:PORT"):
        asyncio.run(connect(ClusterSettings(address="nowhere")))
