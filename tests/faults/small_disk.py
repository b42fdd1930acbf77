"""A deployment on a disk of its own that fills up: `python -m tests.faults.small_disk FOLDER`.

Runs inside namespaces of its own (`unshare --user --map-root-user --mount`), where anybody may mount.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint
from tests.faults.checks import all_jobs, check_pictures
from tests.polling import until

PLAN = DeploymentConfig.parse(
    {"name": "small", "models": ("emoji",), "devices": ("cpu",), "engine": "nothing"}
)


def ask(client: httpx.Client, prompt: str, *, steps: int = 3, seed: int = 0, **query: str) -> httpx.Response:
    body = {"request": {"prompt": prompt, "steps": steps, "seed": seed, "width": 64, "height": 64}}
    return client.post("/v1/jobs", json=body, params=query)


def standing(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/deployment").raise_for_status().json()
    return found


def place_of(job: dict[str, Any]) -> str:
    return f"/v1/jobs/{job['id']}"


def fill(disk: Path) -> None:
    """To the last byte."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def remote_health(running: Endpoint) -> int:
    """What gRPC's health service says."""
    assert running.grpc is not None
    with grpc.insecure_channel(running.grpc) as channel:
        request = health_pb2.HealthCheckRequest()
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=60)
    return int(answer.status)


def full(disk: Path) -> None:
    """Refuses while it is full, loses nothing, and goes on by itself when there is room."""
    running = deploy(PLAN, directory=DeploymentDir(disk / "small"))
    try:
        with httpx.Client(base_url=running.http, timeout=60, trust_env=False) as client:
            first = ask(client, "before", wait="true").raise_for_status().json()
            # Another seed: the same picture would need no room.
            under_way = ask(client, "fault:slow under way", steps=100, seed=1).raise_for_status().json()
            until(lambda: client.get(place_of(under_way)).json()["steps_done"] > 0, "it begins")
            fill(disk)
            # The journal may have some room of its own.
            for _ in range(1000):
                refused = ask(client, "p" * 5000)
                if refused.status_code != 202:
                    break
            assert refused.status_code == 503, refused.text
            assert refused.json()["error"]["code"] == "unavailable"
            assert "space" in refused.json()["error"]["message"]
            assert client.get("/healthz").status_code == 200
            until(lambda: client.get("/readyz").status_code == 503, "readiness says that the disk is full")
            assert "refuses writes" in client.get("/readyz").json()["refusal"]
            assert remote_health(running) == health_pb2.HealthCheckResponse.NOT_SERVING
            assert client.get(place_of(first)).json() == first
            until(lambda: standing(client)["workers"][0]["jobs"] == 0, "work ends")
            # Its picture is made, and there is no room for it.
            assert client.get(place_of(under_way)).json()["state"] == "running"
            assert standing(client)["running"] > 0
            assert client.get("/readyz").status_code == 503
            (disk / "filler").unlink()
            # Without a submission that finds out.
            until(lambda: client.get("/readyz").status_code == 200, "it is ready by itself")
            assert client.get("/readyz").json()["refusal"] is None
            assert remote_health(running) == health_pb2.HealthCheckResponse.SERVING
            until(lambda: ask(client, "after").status_code == 202, "it accepts again")
            until(lambda: {job["state"] for job in all_jobs(running)} == {"done"}, "jobs end")
            jobs = all_jobs(running)
            assert {first["id"], under_way["id"]} <= {job["id"] for job in jobs}
            check_pictures(running, jobs)
    finally:
        stop(running, at_once=True)


def main() -> None:
    disk = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True, timeout=300)
    full(disk)


if __name__ == "__main__":
    main()
