"""Deployments in the background: real processes, with an engine that does nothing so that all else shows."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from select import poll
from urllib.parse import urlsplit
from uuid import uuid4

import grpc
import httpx
import pytest
import websocket
from grpc_health.v1 import health_pb2, health_pb2_grpc

import calotype
from calotype.cli.main import run
from calotype.core.errors import CalotypeError, NotFoundError, RequestError
from calotype.core.hardware import Gpu, GpuSurvey, MigDevice, MigMode
from calotype.serve.api_keys import FILE_NAME, ApiKeys
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.lifecycle.daemon import DeployError
from calotype.serve.lifecycle.registry import DeploymentDir, deployment_dir, running_deployment
from calotype.serve.lifecycle.workers import worker_devices
from calotype.serve.worker.fake_engine import WEIGHT_BYTES
from tests.certificates import certified
from tests.faults.checks import processes_with
from tests.polling import until

IDLE = {"engine": "nothing", "devices": ("cpu",)}


def killed(pid: int) -> None:
    """Kill a process and wait until it is gone."""
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    ended = poll()
    ended.register(watched)
    ended.poll()
    os.close(watched)


def test_it_is_deployed_asked_by_name_and_torn_down(capsys: pytest.CaptureFixture[str]) -> None:
    with calotype.deploy("emoji", name="sd_deploy", **IDLE) as handle:
        (image,) = handle.query("a red apple").images
        assert image.size[0] > 0
    with calotype.client("sd_deploy") as found:
        assert [job.client for job in found.jobs()] == ["local"]
        assert found.status().ready
    assert run(["deployments"]) == 0
    listed, where = capsys.readouterr().out, running_deployment("sd_deploy")[1]
    assert all(word in listed for word in ("sd_deploy", where.http, str(where.grpc)))
    calotype.undeploy("sd_deploy")
    with pytest.raises(NotFoundError, match="does not run"):
        calotype.client("sd_deploy")
    calotype.undeploy("sd_deploy", purge=True)
    with pytest.raises(NotFoundError, match="no deployment 'sd_deploy'"):
        calotype.client("sd_deploy")


def test_the_command_line_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    assert run(["query", "one", "a fox", "--count", "2", "--out", str(tmp_path / "out"), "--seed", "7"]) == 0
    said = capsys.readouterr().out.split()
    assert len(said) == 2
    assert all(Path(name).read_bytes().startswith(b"\x89PNG") for name in said)
    address = str(running_deployment("one")[1].grpc)
    assert run(["query", address, "a fox", "--out", str(tmp_path / "out")]) == 0, "as from another machine"
    assert capsys.readouterr().out.strip().endswith("-0.png")
    assert run(["query", "one", "a fox", "--steps", "0", "--out", str(tmp_path / "out")]) == 2
    assert "steps" in capsys.readouterr().err
    assert run(["query", "one", "a fox", "--preset", "int8", "--out", str(tmp_path / "out")]) == 0
    assert run(["query", "one", "a fox", "--preset", "int9", "--out", str(tmp_path / "out")]) == 2
    assert "'int9' is no preset; did you mean 'int8'" in capsys.readouterr().err
    with calotype.client("one") as found:
        assert [job.preset for job in found.jobs()] == ["int8", "", ""]
        found.query("a fox", preset="fast")
        assert found.jobs()[0].preset == "fast"
    assert run(["query", "on", "a fox"]) == 4
    assert "did you mean 'one'" in capsys.readouterr().err
    assert run(["logs", "one", "-n", "1000"]) == 0
    assert "is ready" in capsys.readouterr().out
    assert run(["undeploy", "one"]) == 0


def test_nothing_is_asked_for_that_could_not_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        assert run(["query", "one", "a fox", "--out", str(tmp_path / "taken")]) == 2
        assert "taken is a file, not a folder" in capsys.readouterr().err
        assert handle.jobs() == []


def test_what_cannot_be_sent_is_said_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        with pytest.raises(RequestError) as refused:
            handle.query("a fox", seed=-1, width=513)
        assert {problem.field for problem in refused.value.problems} == {"seed", "width"}
        with pytest.raises(RequestError, match="sed: is not a known setting; did you mean 'seed'"):
            handle.query("a fox", sed=1)
        with pytest.raises(NotFoundError, match=r"mask: nowhere\.png cannot be read: No such file"):
            handle.submit("a fox", mask="nowhere.png")
        with pytest.raises(CalotypeError, match="its deadline passed"):
            handle.query("a fault:slow fox", steps=200, deadline_s=0.01)
    assert run(["query", "one", "a fox", "--image", str(tmp_path / "nowhere.png")]) == 4
    assert "image: " in capsys.readouterr().err


def test_models_of_the_folder_come_and_go_while_it_runs(tmp_path: Path) -> None:
    checkpoints = tmp_path / "models" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("one.safetensors", "two.safetensors"):
        (checkpoints / name).touch()
    how = {"models_folder": tmp_path / "models", "memory_bytes": 2 * WEIGHT_BYTES, **IDLE}
    (tmp_path / "mine.safetensors").touch()
    with calotype.deploy(str(tmp_path / "mine.safetensors"), name="one", **how) as handle:

        def loaded() -> list[str]:
            return [model.name for model in handle.models()]

        assert loaded() == ["mine.safetensors"], "a path is called by its file's name"
        handle.load("one.safetensors")
        handle.query("a fox", model="two.safetensors")
        assert loaded() == ["one.safetensors", "two.safetensors"], "the least recently used makes room"
        handle.unload("one.safetensors")
        handle.query("a fox")
        handle.query("a fox", model="mine.safetensors")
        assert loaded() == ["two.safetensors", "mine.safetensors"]
        with pytest.raises(NotFoundError, match=r"no model 'too\.safetensors' here; did you mean 'two"):
            handle.load("too.safetensors")
        handle.load("two")
        assert "two" in loaded(), "a name is enough without its suffix"
        with pytest.raises(RequestError, match="not a usable name"):
            handle.load("../checkpoints/one.safetensors")


def test_http_is_there_too() -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    place, running = running_deployment("one")
    with urllib.request.urlopen(f"{running.http}/readyz", timeout=60) as answer:
        assert answer.status == 200
    asked = {"request": {"prompt": "a fox"}}
    named = {"X-Request-Id": "fox-1"}
    job = httpx.post(f"{running.http}/v1/jobs?wait=true", json=asked, headers=named, timeout=60).json()["id"]
    assert "# HELP calotype_gpu_memory_bytes" in httpx.get(f"{running.http}/metrics").text
    lines = [json.loads(line) for line in place.log.read_text().splitlines()]
    (accepted,) = [line for line in lines if line.get("request_id") == "fox-1" and "job_id" in line]
    assert accepted["job_id"] == job, "a request's name leads to its job, and that to all lines about it"


def test_in_the_foreground_it_says_where_it_is_and_ctrl_c_lets_jobs_end() -> None:
    words = ["serve", "emoji", "--name", "one", "--engine", "nothing", "--device", "cpu", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "calotype", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    ) as process:
        assert process.stderr
        try:
            ready = next(line for line in process.stderr if "is ready" in line and not line.startswith("{"))
            assert running_deployment("one")[1].http in ready
            with calotype.client("one") as client:
                job = client.submit("fault:slow", steps=100)
                until(lambda: client.job(job).attempts == 1, "the job is begun")
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 0
        finally:
            process.kill()
    with calotype.deploy("emoji", name="one", **IDLE) as again:
        assert again.job(job).attempts == 1, "it had ended before the server did"
        assert again.picture(job).size[0] > 0


def test_what_was_accepted_outlives_the_server() -> None:
    with calotype.deploy("emoji", name="one", **IDLE) as handle:
        done = handle.query("a dog").job_id
        _, running = running_deployment("one")
        waiting = [handle.submit(f"a cat {i}") for i in range(5)]
    killed(running.pid)
    with pytest.raises(NotFoundError, match="does not run"):
        calotype.client("one")
    with calotype.deploy("emoji", name="one", **IDLE) as again:
        last = again.query("after all of them").job_id
        known = {job.id: job for job in again.jobs()}
        assert set(known) == {done, last, *waiting}
        assert again.picture(done).size[0] > 0
        assert len(known[done].pictures) == 1


class TwoCards:
    """One that is cut into slices, and a whole one."""

    def survey(self) -> GpuSurvey:
        slices = tuple(MigDevice(n, "1g.18gb", f"MIG-{n}", 18, 18, 16, n, 0) for n in range(2))
        cut = Gpu(0, uuid="GPU-0", mig=MigMode(current=True, pending=True), mig_devices=slices)
        return GpuSurvey("595.1", "13.2", (cut, Gpu(1, uuid="GPU-1")))


def test_every_slice_and_whole_card_is_a_worker() -> None:
    assert worker_devices(["all"], TwoCards()) == {
        name: ("cuda", {"CUDA_VISIBLE_DEVICES": name}) for name in ("MIG-0", "MIG-1", "GPU-1")
    }


def test_each_device_has_its_own_process_and_deployments_stand_side_by_side() -> None:
    devices = ("MIG-0", "GPU-1")
    with (
        calotype.deploy("emoji", name="one", **{**IDLE, "devices": devices}) as one,
        calotype.deploy("emoji", name="two", **IDLE) as two,
    ):

        def ready_again(deaths: int) -> bool:
            workers = one.status().workers
            return all(w.state == "ready" for w in workers) and sum(w.restarts for w in workers) == deaths

        until(partial(ready_again, 0), "all workers are ready")
        for deaths, device in enumerate(devices, 1):
            (worker,) = [worker for worker in one.status().workers if worker.name == device]
            variables = Path(f"/proc/{worker.pid}/environ").read_text().split("\0")
            assert f"CUDA_VISIBLE_DEVICES={device}" in variables
            killed(worker.pid)
            assert one.query("a fox").images, "the other one goes on"
            until(partial(ready_again, deaths), "a new worker is ready")
        assert [worker.restarts for worker in two.status().workers] == [0]
        assert not two.jobs()


def test_a_name_is_taken_once(capsys: pytest.CaptureFixture[str]) -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    kept = deployment_dir("one").plan()
    with pytest.raises(RequestError, match="'one' runs already"):
        calotype.deploy("emoji", name="one", **IDLE)
    assert run(["serve", "sdxl", "--name", "one"]) == 2
    assert "'one' runs already" in capsys.readouterr().err
    assert deployment_dir("one").plan() == kept


def test_two_who_deploy_one_name_at_once_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor() as both:
        tries = [both.submit(calotype.deploy, "emoji", name="one", drain_s=drain, **IDLE) for drain in (1, 2)]
    refused = [attempt.exception() for attempt in tries]
    (won,) = (number for number, error in enumerate(refused, 1) if error is None)
    (error,) = (error for error in refused if error is not None)
    assert isinstance(error, RequestError)
    assert deployment_dir("one").plan().drain_s == won
    # Until it has gone, nobody gives it another plan or takes its folder away.
    assert run(["deploy", "sdxl", "--name", "one", "--systemd"]) == 2
    assert "'one' runs already" in capsys.readouterr().err
    calotype.undeploy("one")
    with deployment_dir("one").held():
        with pytest.raises(RequestError, match="'one' is being started or stopped right now"):
            calotype.deploy("emoji", name="one", **IDLE)
        with pytest.raises(RequestError, match="'one' is being started or stopped right now"):
            calotype.undeploy("one", purge=True)
    calotype.undeploy("one", purge=True)


def test_who_changes_their_mind_while_it_starts_leaves_no_server() -> None:
    mark = uuid4().hex
    words = ["deploy", "emoji", "--name", "one", "--port", "0", "--set", "engine=nothing"]
    deploying = subprocess.Popen(
        [sys.executable, "-m", "calotype", *words],
        env={**os.environ, "TEST_RUN": mark},
        start_new_session=True,
    )

    def servers() -> list[int]:
        return [pid for pid in processes_with(f"TEST_RUN={mark}") if _words_of(pid)[:3] == server]

    # It is there, and has hardly begun to import what it needs.
    server = [sys.executable, "-m", "calotype.serve.lifecycle"]
    until(servers, "a server process")
    os.killpg(deploying.pid, signal.SIGINT)
    assert deploying.wait() == 130
    assert not processes_with(f"TEST_RUN={mark}")


def _words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def test_a_plan_of_another_version_hides_no_other_deployment(capsys: pytest.CaptureFixture[str]) -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    (deployment_dir("two").folder).mkdir()
    (deployment_dir("two").folder / "plan.json").write_text('{"name": "two", "colour": "blue"}')
    assert run(["deployments"]) == 0
    listed = capsys.readouterr().out
    assert "one" in listed
    assert "(unreadable plan)" in listed
    assert run(["deploy", "--name", "two"]) == 4
    assert "calotype deploy MODEL --name two" in capsys.readouterr().err


def test_a_taken_port_is_said_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reached = {"http_port": port, "grpc_port": 0}
        with pytest.raises(DeployError, match=f"cannot listen on 127.0.0.1:{port}"):
            calotype.deploy("emoji", name="one", reached=reached, **IDLE)


@pytest.mark.timeout(120)
def test_a_client_that_does_not_read_keeps_nobody_from_stopping_it() -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    where = urlsplit(running_deployment("one")[1].http)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((where.hostname, where.port))
        deaf.sendall(f"GET /openapi.json HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode() * 100)
        assert deaf.recv(1, socket.MSG_PEEK) == b"H", "it has begun to answer"
        calotype.undeploy("one")


def test_who_watches_its_health_hears_that_it_stops() -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    states = health_pb2.HealthCheckResponse
    with grpc.insecure_channel(str(running_deployment("one")[1].grpc)) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=120)
        assert next(watch).status == states.SERVING
        calotype.undeploy("one")
        assert [told.status for told in watch] == [states.NOT_SERVING], "and then it is ended, not cut off"


def test_other_machines_need_a_key() -> None:
    reached = {"host": "0.0.0.0", "http_port": 0, "grpc_port": 0}
    with pytest.raises(DeployError, match="calotype keys create NAME --deployment one"):
        calotype.deploy("emoji", name="one", reached=reached, **IDLE)
    key = ApiKeys(deployment_dir("one").folder).create("artist")
    stranger = calotype.deploy("emoji", name="one", reached=reached, **IDLE)
    with stranger, pytest.raises(CalotypeError, match="API key"):
        stranger.query("a fox")
    with calotype.client("one", api_key=key) as known:
        assert known.query("a fox").images


def test_keys_and_names_may_come_from_outside(tmp_path: Path) -> None:
    key = ApiKeys(tmp_path / "secret").create("artist")
    reached = {"http_port": 0, "grpc_port": 0, "allowed_hosts": ("pictures.example",)}
    calotype.deploy("emoji", name="one", reached=reached, keys_folder=tmp_path / "secret", **IDLE).close()
    address = running_deployment("one")[1].http
    for host, token, status in (
        ("pictures.example", key, 200),
        ("pictures.example", f"{key}x", 401),
        ("elsewhere.example", key, 403),
    ):
        headers = {"Host": host, "Authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}/v1/deployment", headers=headers).status_code == status


def test_a_deployment_that_had_keys_never_starts_open(tmp_path: Path) -> None:
    """Whether the file is lost, was never there, or `--keys` is left out the next time."""
    secret = tmp_path / "secret"
    with pytest.raises(DeployError, match=r"keys\.json is missing; without keys this server would be open"):
        calotype.deploy("emoji", name="one", keys_folder=secret, **IDLE)
    key = ApiKeys(secret).create("artist")
    calotype.deploy("emoji", name="one", keys_folder=secret, **IDLE).close()
    running = running_deployment("one")[1]
    (secret / FILE_NAME).unlink()
    for token, status in ((None, 401), (f"{key}x", 401), (key, 200)):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        assert httpx.get(f"{running.http}/v1/deployment", headers=headers).status_code == status
    for token in (None, key):
        with calotype.client("one", api_key=token) as asking:
            if token is None:
                with pytest.raises(CalotypeError, match="API key"):
                    asking.status()
            else:
                assert asking.status().ready
    assert "the keys that were read last stay valid" in deployment_dir("one").log.read_text()
    calotype.undeploy("one")
    for again in ({"keys_folder": secret}, {}):
        with pytest.raises(DeployError, match=r"keys\.json is missing"):
            calotype.deploy("emoji", name="one", **again, **IDLE)
    key = ApiKeys(deployment_dir("one").folder).create("artist")
    calotype.deploy("emoji", name="one", **IDLE).close()
    with calotype.client("one", api_key=key) as known:
        assert known.status().ready


@pytest.mark.parametrize("ping_s", [0.05, 3600.0])
def test_a_revoked_key_hears_nothing_more(tmp_path: Path, ping_s: float) -> None:
    """At the next event, or where none comes, at the next sign of life."""
    keys = ApiKeys(tmp_path / "secret")
    root, artist = ({"X-API-Key": keys.create(name)} for name in ("root", "artist"))
    reached = {"http_port": 0, "grpc_port": 0, "admins": ("root",), "ping_s": ping_s}
    calotype.deploy("emoji", name="one", reached=reached, keys_folder=tmp_path / "secret", **IDLE).close()
    address = running_deployment("one")[1].http
    heard = websocket.create_connection(f"{address.replace('http', 'ws')}/ws", timeout=60, header=root)
    with httpx.stream("GET", f"{address}/v1/events", headers=root, timeout=60) as stream, ExitStack() as left:
        left.callback(heard.shutdown)
        lines = stream.iter_lines()
        assert "event: queue" in (next(lines), next(lines))
        assert json.loads(heard.recv())["type"] == "status"
        keys.revoke("root")
        if ping_s > 60:
            asked = {"request": {"prompt": "a secret of the artist"}}
            httpx.post(f"{address}/v1/jobs", json=asked, headers=artist, timeout=60).raise_for_status()
        rest = list(islice(lines, 500))
        assert len(rest) < 500, "it goes on"
        assert not [line for line in rest if line.startswith("event")]
        opcode, why = heard.recv_data()
        assert (opcode, int.from_bytes(why[:2])) == (websocket.ABNF.OPCODE_CLOSE, 1008)


def test_the_command_line_says_where_keys_are_and_what_a_server_is_called(tmp_path: Path) -> None:
    words = [
        "deploy",
        "--name",
        "one",
        "--systemd",
        "--keys",
        str(tmp_path),
        "--allowed-host",
        "pictures.example",
    ]
    assert run([*words, "--allowed-host", "pictures"]) == 0
    plan = deployment_dir("one").plan()
    assert (plan.keys_folder, plan.reached.allowed_hosts) == (tmp_path, ("pictures.example", "pictures"))


def test_the_command_line_sets_every_limit_and_keeps_paths_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.safetensors").touch()
    (tmp_path / "models").mkdir()
    words = ["deploy", "mine.safetensors", "sdxl", "--name", "one", "--systemd", "--models", "models"]
    sets = ["--set", "queue.max_age_s=3600", "--set", "memory_bytes=1000", "--set", "reached.ping_s=2"]
    assert run([*words, *sets]) == 0
    plan = deployment_dir("one").plan()
    assert plan.models == (str(tmp_path / "mine.safetensors"), "sdxl")
    assert plan.models_folder == tmp_path / "models"
    assert (plan.queue.max_age_s, plan.memory_bytes, plan.reached.ping_s) == (3600, 1000, 2)
    assert plan.reached.host == "127.0.0.1"
    assert run([*words, "--set", "queue.max_age=3600"]) == 2
    assert "queue.max_age: is not a known setting; did you mean 'max_age_s'" in capsys.readouterr().err


def test_a_certificate_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    nowhere, nothing = tmp_path / "nowhere.pem", tmp_path / "nothing.pem"
    nothing.touch()
    for key, rule in ((nowhere, "tls_key: .*nowhere.pem cannot be read: No such file"), (nothing, "PEM")):
        reached = {"grpc_port": 0, "tls_certificate": nothing, "tls_key": key}
        with pytest.raises(DeployError, match=rule):
            calotype.deploy("emoji", name="one", reached=reached, **IDLE)


def test_over_tls_it_is_found_by_name_whatever_its_certificate_calls_it(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "DNS:*.pictures.example")
    reached = {"grpc_port": 0, "tls_certificate": certificate, "tls_key": key}
    with calotype.deploy("emoji", name="one", reached=reached, **IDLE) as handle:
        assert handle.query("a fox").images
    other = calotype.client(str(running_deployment("one")[1].grpc), certificate=certificate)
    with other, pytest.raises(CalotypeError, match="Hostname Verification"):
        other.query("a fox")
    for content, rule in (
        ("no certificate", "cannot be reached over TLS"),
        (None, "cert.pem cannot be read"),
    ):
        certificate.unlink()
        if content is not None:
            certificate.write_text(content)
        with pytest.raises(CalotypeError, match=rule):
            calotype.client("one")


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"name": "../one"}, "name"),
        ({"name": "one", "models": ("/a/x.ckpt", "/b/x.ckpt")}, "two models would be called 'x.ckpt'"),
        ({"name": "one", "preset": "fasst"}, "preset: 'fasst' is no preset; did you mean 'fast'"),
        ({"name": "one", "precision": "fp8"}, "precision: 'fp8' is not known; did you mean"),
        ({"name": "one", "devices": ("tpu",)}, "'tpu' is not a device"),
        ({"name": "one", "devices": ("cpu", "cpu")}, "named twice"),
        ({"name": "one", "drain_s": -1.0}, "drain_s"),
        ({"name": "one", "colour": "red"}, "colour"),
    ],
)
def test_a_wrong_plan_is_refused(settings: dict[str, object], rule: str) -> None:
    with pytest.raises(CalotypeError, match=rule):
        calotype.deploy("emoji", **{**IDLE, **settings})  # type: ignore[arg-type]  # wrong on purpose


def test_another_process_with_the_same_number_is_not_taken_for_it() -> None:
    calotype.deploy("emoji", name="one", **IDLE).close()
    place, running = running_deployment("one")
    calotype.undeploy("one")
    place.keep_running(running.model_copy(update={"pid": os.getpid()}))
    assert place.running() is None


def test_a_systemd_unit_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALOTYPE_MODELS", "/my models/100% of $HOME")
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "$HOME"))
    assert run(["deploy", "emoji", "--name", "one", "--device", "cpu", "--systemd"]) == 0
    unit = tmp_path / "calotype-one.service"
    unit.write_text(capsys.readouterr().out)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", unit],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stderr
    assert not checked.stderr
    # Systemd puts variables into arguments, and takes a dollar in `Environment=` as it is.
    assert 'Environment="CALOTYPE_MODELS=/my models/100%% of $HOME"' in unit.read_text().splitlines()
    assert f'"{tmp_path}/$$HOME/deployments/one"\n' in unit.read_text()
    assert DeploymentDir(deployment_dir("one").folder).plan().name == "one"


def test_systemd_is_told_when_it_is_ready(tmp_path: Path, state: Path) -> None:
    """As systemd starts it: no pipe, but a socket that hears READY=1."""
    assert run(["deploy", "emoji", "--name", "one", "--systemd"]) == 0
    place = deployment_dir("one")
    place.keep_plan(place.plan().model_copy(update=IDLE))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(120)
        process = subprocess.Popen(
            [sys.executable, "-m", "calotype.serve.lifecycle", place.folder],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert notified.recv(100) == b"READY=1"
            process.terminate()
            assert notified.recv(100) == b"STOPPING=1"
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_stopping_at_once_waits_for_no_job_however_late_the_server_hears_of_it() -> None:
    with calotype.deploy("emoji", name="hasty", drain_s=3600.0, **IDLE) as handle:
        handle.submit("fault:hang")
        until(lambda: handle.status().running == 1, "the job runs")
    pid = running_deployment("hasty")[1].pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: set(_told_of(pid, "State")) == {"T"}, "all its threads stand still", patience_s=30)
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(calotype.undeploy, "hasty", at_once=True)
        try:
            until(lambda: _waiting_signals(pid) >= {2, 15}, "both signals wait", patience_s=30)
        finally:
            os.kill(pid, signal.SIGCONT)
        stopped.result(timeout=60)
    with calotype.deploy("emoji", name="hasty", **IDLE) as handle:
        (job,) = handle.jobs()
        assert pb.JobState.Name(job.state) in ("JOB_STATE_QUEUED", "JOB_STATE_RUNNING")


def _told_of(pid: int, what: str) -> list[str]:
    """What the kernel says of each thread of a process."""
    threads = Path(f"/proc/{pid}/task").glob("*/status")
    return [re.findall(rf"^{what}:\t(\w+)", each.read_text(), re.MULTILINE)[0] for each in threads]


def _waiting_signals(pid: int) -> set[int]:
    """Those that were sent to a process and that it has not heard yet."""
    mask = int(_told_of(pid, "ShdPnd")[0], 16)
    return {number for number in range(1, 32) if mask & 1 << (number - 1)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "bogus"], "engine: 'bogus' is not an engine; known: calotype, nothing"),
        (["--engine", "nothin"], "did you mean 'nothing'?"),
        (["--models", "/nosuch"], "models_folder: /nosuch does not exist; name a folder"),
        (["--records", "/nosuch"], "records: /nosuch does not exist; name a folder"),
        (["--admin", "artist"], "admins: no API key is named 'artist'; none are known; create it first with"),
        (["--name", ""], "--name: is empty"),
        (["nosuch"], "models: there is no model 'nosuch': not a file, not in "),
        (["emojy"], "did you mean 'emoji'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("verb", ["serve", "deploy", "deploy --systemd"])
def test_what_cannot_work_is_refused_before_anything_starts(
    verb: str, words: list[str], told: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb.split(), *words]) == 2
    assert told in capsys.readouterr().err
    assert not (state / "deployments").exists()


def test_an_admin_with_a_key_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "create", "artist", "--deployment", "one"]) == 0
    assert run(["deploy", "--name", "one", "--admin", "artist", "--systemd"]) == 0
    assert run(["deploy", "--name", "one", "--admin", "artists", "--systemd"]) == 2
    assert "no API key is named 'artists'; did you mean 'artist'?" in capsys.readouterr().err


def test_python_is_refused_the_same(tmp_path: Path) -> None:
    for settings in ({"engine": "bogus"}, {"models_folder": tmp_path / "nosuch", "engine": "nothing"}):
        with pytest.raises(RequestError, match=r"bogus|nosuch"):
            calotype.deploy("emoji", name="one", **settings)


@pytest.mark.parametrize("verb", ["serve", "deploy"])
def test_a_start_that_fails_leaves_the_deployment_as_it_was(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but the port is wrong: it is found out after the plan has been written."""
    calotype.deploy("emoji", name="one", **IDLE).close()
    calotype.undeploy("one")
    kept = deployment_dir("one").plan()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run([verb, "other", "--name", "one", "--engine", "nothing", "--port", port]) == 2
    assert "cannot listen on" in capsys.readouterr().err
    assert deployment_dir("one").plan() == kept
    with calotype.deploy("other", name="one", **IDLE) as handle:
        assert [model.name for model in handle.models()] == ["other"]
    assert deployment_dir("one").plan().models == ("other",), "a start that works counts"
