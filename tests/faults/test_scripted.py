"""Faults of the machine under a real deployment, seen from outside: disk, database, ports, clock."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import calotype
from calotype.cli.main import run
from calotype.core.errors import CalotypeError, NotFoundError
from calotype.serve.lifecycle.daemon import DeployError, stop
from calotype.serve.lifecycle.registry import all_deployment_dirs, deployment_dir, running_deployment
from calotype.serve.service import UnavailableError
from tests.faults.checks import FILES
from tests.faults.storm import killed

LONGEST_S = 300
IDLE = {"engine": "nothing", "devices": ("cpu",)}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    yield tmp_path / "state"
    for place in all_deployment_dirs():
        running = place.running()
        if running is not None:
            stop(running, at_once=True)


def in_its_own_world(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run where mounting is allowed and seen by nobody else."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = in_its_own_world(sys.executable, "-m", "tests.faults.small_disk", disk)
    assert done.returncode == 0, done.stderr


def test_a_read_only_disk_is_said(tmp_path: Path, state: Path) -> None:
    state.mkdir()
    script = f"mount -t tmpfs -o ro tmpfs {state} && {sys.executable} -m calotype deploy emoji --name one"
    done = in_its_own_world("sh", "-c", script)
    assert "Traceback" not in done.stderr
    assert "Read-only file system" in done.stderr
    assert done.returncode == 2


def test_a_disk_that_became_read_only_keeps_its_history(state: Path) -> None:
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        handle.query("a fox")
    calotype.undeploy("one")
    folder = deployment_dir("one").folder
    script = (
        f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && "
        f"{sys.executable} -m calotype.serve.lifecycle {folder}"
    )
    done = in_its_own_world("sh", "-c", script)
    assert "Traceback" not in done.stderr
    assert "must have space and be writable" in done.stderr
    assert done.returncode not in (0, 1)
    with calotype.deploy("emoji", name="one", **IDLE) as again:
        assert len(again.jobs()) == 1


def test_a_damaged_database_is_replaced_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        lost = handle.query("a fox").job_id
    place, running = running_deployment("one")
    killed(running.pid)
    for path in place.queue.glob("jobs.sqlite*"):
        path.write_bytes(b"this is not a database" * 1000)
    assert run(["deploy", "emoji", "--name", "one", "--engine", "nothing", "--device", "cpu"]) == 0
    said = capsys.readouterr().err
    (kept,) = place.queue.glob("damaged-*")
    assert f"one: {said_of(kept)}" in said
    with calotype.client("one") as again:
        assert again.query("a fox after all").images
        with pytest.raises(
            NotFoundError, match=rf"could not be read from a damaged queue database .*{kept.name}"
        ):
            again.job(lost)
        assert again.status().notices == [said_of(kept, kept.name)]
    _, running = running_deployment("one")
    ready = httpx.get(f"{running.http}/readyz", trust_env=False)
    assert (ready.status_code, ready.json()["notices"]) == (200, [said_of(kept, kept.name)])
    assert run(["deployments"]) == 0
    assert f"one: {said_of(kept)}" in capsys.readouterr().out
    assert run(["deployments", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["notices"] == [said_of(kept)]
    assert len(list((kept / "pictures").iterdir())) == 1
    assert str(kept) in place.log.read_text()


def said_of(kept: Path, shown: str | None = None) -> str:
    report = json.loads((kept / "report.json").read_text())
    assert "damaged" in report["reason"]
    where = f"the files are in {shown or kept}; delete that folder to end this notice"
    return f"{report['found_at']}: {report['reason']}; {where}"


def test_jobs_that_can_be_read_in_a_damaged_database_are_there_after_a_start() -> None:
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        fox = handle.query("a fox")
        before = handle.job(fox.job_id)
    calotype.undeploy("one")
    place = deployment_dir("one")
    with (place.queue / "jobs.sqlite").open("r+b") as file:
        file.write(b"\xff" * 4096)
    with calotype.deploy("emoji", name="one", **IDLE) as again:
        assert again.job(fox.job_id) == before
        assert again.picture(fox.job_id).size == fox.images[0].size


def test_a_database_deleted_under_a_running_server_is_noticed_and_comes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        fox = handle.query("a fox").job_id
        place, running = running_deployment("one")
        for path in place.queue.glob("jobs.sqlite*"):
            path.unlink()
        with httpx.Client(base_url=running.http, timeout=60, trust_env=False) as client:
            refused = client.post("/v1/jobs", json={"request": {"prompt": "too late"}})
            assert refused.status_code == 503
            assert "jobs.sqlite was deleted" in refused.json()["error"]["message"]
            with pytest.raises(UnavailableError, match=r"jobs\.sqlite was deleted .*start it again"):
                handle.query("too late")
            ready = client.get("/readyz")
            assert ready.status_code == 503
            assert "jobs.sqlite was deleted" in ready.json()["refusal"]
            # A start helps, so liveness asks for one.
            assert client.get("/healthz").status_code == 503
            assert client.get(f"/v1/jobs/{fox}").json()["state"] == "done"
        assert run(["deployments"]) == 0
        listed = capsys.readouterr().out
        assert "not ready" in listed
        assert "one: the queue's database jobs.sqlite was deleted" in listed
    calotype.undeploy("one")
    with calotype.deploy("emoji", name="one", **IDLE) as again:
        assert [job.id for job in again.jobs()] == [fox]
        assert again.picture(fox).size[0] > 0
        assert again.query("another").images


def test_a_taken_port_of_grpc_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeployError, match=str(port)):
            calotype.deploy("emoji", name="one", reached={"http_port": 0, "grpc_port": port}, **IDLE)
    calotype.deploy("emoji", name="one", **IDLE).close()


def test_the_clock_may_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour forward and three back, with work under way and a restart between: all is done, once."""
    # Python imports a module of this name at its start, in every process.
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, time\n"
        f"offset, real = pathlib.Path({str(tmp_path / 'offset')!r}), time.time\n"
        "time.time = lambda: real() + float(offset.read_text())\n"
    )

    def jump_to(seconds: str) -> None:
        # At once: whoever asked for the time of an empty file would break.
        (tmp_path / "next").write_text(seconds)
        (tmp_path / "next").replace(tmp_path / "offset")

    jump_to("0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        _, running = running_deployment("one")
        with httpx.Client(base_url=running.http, timeout=60, trust_env=False) as client:
            asked = {"request": {"prompt": "fault:slow", "steps": 100, "seed": 1}, "deadline_s": 600.0}
            key = {"Idempotency-Key": "once"}
            slow = client.post("/v1/jobs", json=asked, headers=key).raise_for_status().json()
            ids = {slow["id"]}
            for jump in ("3600", "-7200"):
                jump_to(jump)
                # A new deadline makes it look at all of them.
                hurried = {**asked, "request": {"prompt": f"after {jump}", "steps": 1}}
                ids.add(client.post("/v1/jobs?wait=true", json=hurried).raise_for_status().json()["id"])
                again = client.post("/v1/jobs?wait=true", json=asked, headers=key).raise_for_status().json()
                assert (again["id"], again["state"]) == (slow["id"], "done")
            waiting = client.post(
                "/v1/jobs", json={**asked, "request": {"prompt": "fault:slow b", "steps": 50}}
            ).json()
            assert client.get("/metrics").status_code == 200
    killed(running.pid)
    jump_to("-10000")
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        ids |= {waiting["id"], handle.query("last").job_id}
        _, running = running_deployment("one")
        asked_again = httpx.get(f"{running.http}/v1/jobs/{waiting['id']}", trust_env=False).json()
        assert asked_again["state"] in ("queued", "running", "done")
        assert {job.id for job in handle.jobs()} == ids


def test_a_disk_that_refuses_at_the_start_is_no_bug(state: Path) -> None:
    state.parent.mkdir(exist_ok=True)
    state.write_text("in the way")
    with pytest.raises(CalotypeError, match="cannot be written"):
        calotype.deploy("emoji", name="one", **IDLE)
    state.unlink()


def test_what_a_killed_server_was_writing_is_swept() -> None:
    place = deployment_dir("one")
    place.folder.mkdir(parents=True)
    (place.folder / ".running.json.abc.part").write_text("half of")
    calotype.deploy("emoji", name="one", **IDLE).close()
    calotype.undeploy("one")
    assert {path.name for path in place.folder.iterdir()} == FILES
