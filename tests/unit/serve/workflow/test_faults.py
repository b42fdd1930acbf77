"""Workflows under kill -9: of the worker in the middle of a node, and of the server with its worker."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import Endpoint, deployment_dir
from tests.unit.serve.workflow.comfy_client import ComfyClient
from tests.unit.serve.workflow.conftest import Connect, graph, planned


def attempts(client: ComfyClient, prompt_id: str) -> int:
    return int(client.get(f"/v1/jobs/{prompt_id}")["attempts"])


def test_a_worker_that_dies_in_a_workflow_finishes_it_once(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    deadly = graph(("SmallDie", {"mark": str(tmp_path / "died")}), seed=31)
    # Saved before the worker dies: what a lost attempt kept must not be there twice.
    deadly["early"] = {"class_type": "SmallPreview", "inputs": {"images": ["1", 0]}}
    deadly = {"early": deadly.pop("early"), **deadly}
    prompt_id = client.queue_prompt(deadly)["prompt_id"]
    heard = client.until_done(prompt_id)
    assert heard[-2]["type"] == "execution_success"
    assert [m["type"] for m in heard].count("execution_success") == 1
    assert [m["type"] for m in heard].count("execution_start") == 2
    assert attempts(client, prompt_id) == 2
    assert {node: len(made) for node, made in client.images(prompt_id).items()} == {"early": 1, "save": 1}
    assert len(client.get(f"/v1/jobs/{prompt_id}")["pictures"]) == 2


def test_a_killed_server_goes_on_where_it_was_and_remembers(surroundings: Path, tmp_path: Path) -> None:
    running = deploy(planned("killed"))
    client = ComfyClient(running.http)
    try:
        done = client.queue_prompt(graph(seed=1))["prompt_id"]
        client.until_done(done)
        before = (client.get("/history"), client.images(done))
        given = client.upload(before[1]["save"][0], "kept.png")
        held = client.queue_prompt(graph(("SmallHold", {"until": str(tmp_path / "go")})))["prompt_id"]
        client.until("progress", node="2")
        reading = {**graph(), "1": {"class_type": "SmallLoad", "inputs": {"image": given["name"]}}}
        waiting = client.queue_prompt(reading)["prompt_id"]
        os.kill(running.pid, signal.SIGKILL)
        again = _started_again("killed")
        client.close()
        client = ComfyClient(again.http, client.client_id)
        assert (client.get("/history"), client.images(done)) == before
        assert [entry[1] for part in client.get("/queue").values() for entry in part] == [held, waiting]
        (tmp_path / "go").touch()
        client.until_done(waiting)
        states = {job["id"]: (job["state"], job["attempts"]) for job in client.get("/v1/jobs")["jobs"]}
        assert states == {done: ("done", 1), held: ("done", 2), waiting: ("done", 1)}
        assert list(client.get("/history")) == [done, held, waiting]
    finally:
        client.close()
        stop(_running("killed"), at_once=True)


def test_a_workflow_that_kills_every_worker_fails_alone(connect: Connect) -> None:
    client = connect()
    deadly = client.queue_prompt(graph(("SmallDeadly", {})))["prompt_id"]
    behind = client.queue_prompt(graph(seed=8))["prompt_id"]
    assert client.until_done(behind)[-2]["type"] == "execution_success"
    job = client.get(f"/v1/jobs/{deadly}")
    while job["state"] != "failed":
        client.until("status")
        job = client.get(f"/v1/jobs/{deadly}")
    # It may have been handed out once more to a worker that was gone already, which is no loss.
    assert job["failure"]["kind"] == "worker_lost"
    assert job["attempts"] >= 3
    assert (
        "died 3 times"
        in client.get(f"/history/{deadly}")[deadly]["status"]["messages"][-1][1]["exception_message"]
    )


def test_a_deadline_passes_while_it_runs(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    until: dict[str, Any] = {"until": str(tmp_path / "never")}
    prompt_id = client.queue_prompt(graph(("SmallHold", until)), deadline_s=0.2)["prompt_id"]
    heard = client.until_done(prompt_id)
    assert heard[-2]["type"] == "execution_error"
    assert "deadline" in heard[-2]["data"]["exception_message"]
    after = client.queue_prompt(graph())["prompt_id"]
    assert client.until_done(after)[-2]["type"] == "execution_success"


def test_ordinary_jobs_go_on_beside_a_workflow(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    held = client.queue_prompt(graph(("SmallHold", {"until": str(tmp_path / "go")})))["prompt_id"]
    client.until("progress", node="2")
    made = client.make_pictures("an apple")
    assert (made["state"], made["kind"]) == ("done", "pictures")
    assert client.get(f"/v1/jobs/{held}")["state"] == "running"
    (tmp_path / "go").touch()
    client.until_done(held)
    kinds = {kind: client.get("/v1/jobs", kind=kind)["jobs"] for kind in ("pictures", "workflow")}
    assert made["id"] in [job["id"] for job in kinds["pictures"]]
    assert held in [job["id"] for job in kinds["workflow"]]


def _running(name: str) -> Endpoint:
    running = deployment_dir(name).running()
    assert running is not None
    return running


def _started_again(name: str) -> Endpoint:
    """Once the killed one has let go of its folder."""
    place = deployment_dir(name)
    while place.running() is not None:
        pass
    return deploy(place.plan())
