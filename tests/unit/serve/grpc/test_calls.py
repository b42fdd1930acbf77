"""The methods of the proto, called over a real connection."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from PIL import Image

from calotype.core.errors import RequestError
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc import server as server_module
from calotype.serve.grpc.calotype_pb2_grpc import CalotypeStub
from calotype.serve.grpc.server import SERVICE, create_server, listen
from calotype.serve.service import Status, WorkerStatus
from calotype.serve.settings import ServeSettings
from calotype.spec.generate_request import GenerateRequest, LoraUse, MicroConditioning
from calotype.spec.job import Job, JobPicture, Submission
from tests.certificates import certified
from tests.unit.serve.grpc.frames import Frames
from tests.unit.serve.grpc.running import Running, running, submission
from tests.unit.serve.http.fake_service import StandIn, png

ROOT = Path(__file__).parents[4]


def test_the_committed_code_is_what_the_generator_makes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "scripts/generate-grpc", tmp_path], check=True, env=environment, timeout=300)
    made = sorted(tmp_path.rglob("*_pb2*"))
    assert len(made) == 3
    for path in made:
        committed = ROOT / "src" / path.relative_to(tmp_path)
        assert committed.read_text() == path.read_text(), f"{committed.name}: run scripts/generate-grpc"


@pytest.mark.parametrize(
    ("message", "model", "elsewhere"),
    [
        (pb.GenerateRequest, GenerateRequest, {"image", "mask"}),
        (pb.LoraUse, LoraUse, set()),
        (pb.MicroConditioning, MicroConditioning, set()),
        # What is for clients of workflows alone is told over HTTP.
        (pb.PictureInfo, JobPicture, {"file"}),
        (pb.Job, Job, {"request", "request_json", "kind", "sequence", "report"}),
        (pb.Submission, Submission, {"image", "mask"}),
    ],
)
def test_the_proto_has_every_field(message: Any, model: Any, elsewhere: set[str]) -> None:
    assert set(message.DESCRIPTOR.fields_by_name) ^ set(model.model_fields) <= elsewhere


@pytest.mark.parametrize(
    ("message", "kept"), [(pb.WorkerStatus, WorkerStatus), (pb.DeploymentStatus, Status)]
)
def test_the_proto_tells_all_of_the_status(message: Any, kept: Any) -> None:
    assert {field.name for field in dataclasses.fields(kept)} <= set(message.DESCRIPTOR.fields_by_name)


def test_pictures_of_a_text(server: Running) -> None:
    request = pb.GenerateRequest(
        prompt="a red apple",
        width=64,
        height=48,
        seed=2**64 - 1,
        count=2,
        steps=3,
        cfg=6.5,
        loras=[pb.LoraUse(name="shiny", strength=0.8)],
        micro=pb.MicroConditioning(target_size=[64, 48]),
        tile_vae=False,
    )
    made = server.stub.Generate(pb.Submission(request=request, model="sd15", priority=-3), timeout=20)
    assert made.job.state == pb.JOB_STATE_DONE
    assert [Image.open(io.BytesIO(data)).size for data in made.pictures] == [(64, 48)] * 2
    assert [picture.seed for picture in made.job.pictures] == [2**64 - 1, 0]
    assert (made.job.model, made.job.priority, made.job.client) == ("sd15", -3, "local")
    told = json.loads(made.job.request_json)
    assert (told["cfg"], told["tile_vae"], told["micro"]["target_size"]) == (6.5, False, [64, 48])
    assert told["loras"] == [{"name": "shiny", "strength": 0.8, "text_strength": None}]


def test_a_job_outlives_the_call_and_is_found_again(server: Running) -> None:
    accepted = server.stub.Submit(submission(count=2))
    assert accepted.state == pb.JOB_STATE_QUEUED
    assert server.ended(accepted.id) == "done"
    found = server.stub.Get(pb.JobId(id=accepted.id))
    assert found.state == pb.JOB_STATE_DONE
    file = server.stub.Picture(pb.PictureRequest(job_id=accepted.id, index=1))
    assert file.sha256 == hashlib.sha256(file.png).hexdigest() == found.pictures[1].sha256
    page = server.stub.List(pb.ListRequest(state=pb.JOB_STATE_DONE, limit=1))
    assert [job.id for job in page.jobs] == [accepted.id]
    assert page.next
    assert accepted.id not in [job.id for job in server.stub.List(pb.ListRequest(before=page.next)).jobs]


def test_a_job_chooses_its_preset(server: Running) -> None:
    asked = submission()
    asked.preset = "int8"
    accepted = server.stub.Submit(asked)
    assert accepted.preset == "int8"
    assert server.ended(accepted.id) == "done"
    assert server.stub.List(pb.ListRequest(limit=1)).jobs[0].preset == "int8"
    assert not server.stub.Submit(submission()).HasField("preset")


def test_a_key_makes_nothing_twice(server: Running) -> None:
    asked = submission()
    asked.idempotency_key = "once"
    assert server.stub.Submit(asked).id == server.stub.Submit(asked).id


def test_a_seed_is_drawn_and_recorded_where_none_is_given(server: Running) -> None:
    jobs = [server.stub.Submit(submission()) for _ in range(3)]
    assert len({json.loads(job.request_json)["seed"] for job in jobs}) == 3
    seedless = submission()
    seedless.idempotency_key = "seedless"
    again = [server.stub.Submit(seedless) for _ in range(2)]
    assert len({(job.id, job.request_json) for job in again}) == 1


def test_pictures_are_given(server: Running) -> None:
    asked = submission(strength=0.5)
    asked.image, asked.mask = png(24, 16), png(24, 16, (255, 255, 255))
    made = server.stub.Generate(asked, timeout=20)
    assert server.service.given[made.job.id] == (asked.image, asked.mask)


@pytest.mark.parametrize("previews", [False, True])
def test_a_stream_tells_each_step_and_ends_with_the_pictures(server: Running, previews: bool) -> None:
    asked = pb.GenerateStreamRequest(submission=submission(), previews=previews)
    told = list(server.stub.GenerateStream(asked, timeout=20))
    steps = [progress.job.steps_done for progress in told]
    assert steps == sorted(steps)
    assert {1, 2, 3, 4} <= set(steps)
    assert any(progress.HasField("preview") for progress in told) == previews
    assert told[-1].job.state == pb.JOB_STATE_DONE
    assert len(told[-1].pictures) == 1
    assert not any(progress.pictures for progress in told[:-1])


@pytest.mark.parametrize("way", ["Generate", "GenerateStream"])
def test_who_hangs_up_cancels_the_job(server: Running, way: str) -> None:
    prompt = f"hold and hang up {way}"
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub: Any = CalotypeStub(channel)
        if way == "Generate":
            call = stub.Generate.future(submission(prompt))
        else:
            call = stub.GenerateStream(pb.GenerateStreamRequest(submission=submission(prompt)))
        held = server.await_(server.service.holding(prompt))
    assert server.ended(held.id) == "cancelled"
    assert server.await_(server.service.job(held.id)).steps_done == 2
    assert call.code() == grpc.StatusCode.CANCELLED
    server.good()


@pytest.mark.parametrize("way", ["Generate", "GenerateStream"])
@pytest.mark.parametrize("comes_back", [False, True])
def test_who_cancels_the_call_cancels_the_job_unless_it_may_come_back(
    server: Running, way: str, comes_back: bool
) -> None:
    prompt = f"hold {way} {comes_back}"
    asked = submission(prompt)
    if comes_back:
        asked.idempotency_key = prompt
    if way == "Generate":
        call = server.stub.Generate.future(asked, timeout=20)
    else:
        call = server.stub.GenerateStream(pb.GenerateStreamRequest(submission=asked), timeout=20)
    held = server.await_(server.service.holding(prompt))
    call.cancel()
    if comes_back:
        # The server hears of it at some time; the job must not mind, whenever that is.
        server.good()
        server.await_(release(server.service))
    assert server.ended(held.id) == ("done" if comes_back else "cancelled")
    server.good()


async def release(service: StandIn) -> None:
    service.release()


def test_cancel(server: Running) -> None:
    accepted = server.stub.Submit(submission("hold on"))
    server.stub.Cancel(pb.JobId(id=accepted.id))
    assert server.ended(accepted.id) == "cancelled"


def test_the_calls_deadline_is_the_jobs(server: Running) -> None:
    call = server.stub.Generate.future(submission("hold a deadline"), timeout=15)
    held = server.await_(server.service.holding("hold a deadline"))
    assert held.deadline_at
    # gRPC rounds what it sends up a little.
    assert 14 < held.deadline_at - held.created_at < 16
    call.cancel()
    with pytest.raises(grpc.RpcError) as late:
        server.stub.Generate(submission("hold too long"), timeout=0.1)
    assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    asked = submission("hold too long for itself")
    asked.deadline_s = 0.01
    with pytest.raises(grpc.RpcError) as late:
        server.stub.Generate(asked, timeout=20)
    assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "its time was over" in str(late.value.details())
    server.good()


def test_models_and_status(keyed: Running) -> None:
    alice, root = (("authorization", "Bearer alice-key"),), (("authorization", "Bearer root-key"),)
    names = [model.name for model in keyed.stub.Models(pb.ModelsRequest(), metadata=alice).models]
    assert names == ["emoji", "sd15"]
    for method in (keyed.stub.Load, keyed.stub.Unload):
        with pytest.raises(grpc.RpcError) as refused:
            method(pb.ModelName(model="sdxl"), metadata=alice)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        method(pb.ModelName(model="sdxl"), metadata=root)
    status = keyed.stub.Status(pb.StatusRequest(), metadata=alice)
    assert (status.name, status.ready, status.workers[0].models[0].name) == ("stand-in", True, "emoji")
    assert status.workers[0].free_bytes == 2**29
    assert not status.workers[0].HasField("pid"), "process ids are for admins"
    assert keyed.stub.Status(pb.StatusRequest(), metadata=root).workers[0].pid == 1234


def test_health_is_readiness_and_needs_no_key(keyed: Running) -> None:
    stub = health_pb2_grpc.HealthStub(keyed.channel)
    states = health_pb2.HealthCheckResponse
    for name in ("", SERVICE):
        assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == states.SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        stub.Check(health_pb2.HealthCheckRequest(service="nothing"))
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=20)
    assert next(watch).status == states.SERVING
    keyed.service.draining = True
    try:
        assert next(watch).status == states.NOT_SERVING
        assert stub.Check(health_pb2.HealthCheckRequest()).status == states.NOT_SERVING
    finally:
        keyed.service.draining = False
    assert next(watch).status == states.SERVING
    watch.cancel()


def test_a_client_that_pings_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often it may is shortened, so that nobody has to wait."""
    monkeypatch.setattr(server_module, "SHORTEST_BETWEEN_PINGS_MS", 0)
    with running() as patient, Frames(patient.port) as client:
        for number in range(20):
            client.ping(number)


def test_reflection_tells_the_proto(server: Running) -> None:
    told = ProtoReflectionDescriptorDatabase(server.channel)
    assert {SERVICE, "grpc.health.v1.Health"} <= set(told.get_services())
    assert "calotype.proto" in told.FindFileContainingSymbol(SERVICE).name


def test_a_taken_port_is_said(server: Running) -> None:
    settings = ServeSettings(grpc_port=server.port)

    async def begin() -> None:
        listen(create_server(StandIn(), keys=None, settings=settings), settings)

    with pytest.raises(RequestError, match="another program may use it"):
        server.await_(begin())


def test_tls(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "IP:127.0.0.1")
    with running(tls_certificate=certificate, tls_key=key) as secure:
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{secure.port}", credentials) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError):
            secure.stub.Status(pb.StatusRequest(), timeout=20)
