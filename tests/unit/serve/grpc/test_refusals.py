"""Every bad call is refused with the reason and its code, and the next good one is served."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from calotype.core.errors import RequestError
from calotype.serve.client_shares import address_group
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.interceptor import address_of
from calotype.serve.grpc.server import create_server
from calotype.serve.settings import ServeSettings
from tests.unit.serve.grpc.running import Running, running, submission
from tests.unit.serve.http.access_lines import access_lines
from tests.unit.serve.http.bad_requests import BAD_NAMES, BAD_PICTURES, BAD_REQUESTS
from tests.unit.serve.http.fake_service import StandIn, StandInKeys, png

Code = grpc.StatusCode
BY_ID = ("Get", "Cancel", "Picture")
NOT_SAYABLE: dict[str, type[Exception] | tuple[type[Exception], ...]] = {
    'width "512"': TypeError,
    "width NaN": (TypeError, ValueError),
    "seed -1": ValueError,
    "seed 2^64": ValueError,
    "seed 1.5": TypeError,
    "half a character": UnicodeEncodeError,
    "unknown field": ValueError,
    "a file of the server": ValueError,
}
"""What the proto's types have no way to say: the client's own library refuses it."""


@pytest.fixture(autouse=True)
def _still_serving(server: Running) -> Iterator[None]:
    yield
    server.good()


def refused(call: Callable[[], Any], code: grpc.StatusCode, words: str = "") -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        call()
    assert error.value.code() == code, error.value.details()
    assert re.search(words, error.value.details() or ""), error.value.details()
    return error.value


def trailing(error: Any) -> dict[str, Any]:
    return dict(error.trailing_metadata())


@pytest.mark.parametrize("letter", ["x", "画"])
def test_however_much_is_wrong_the_reason_arrives(server: Running, letter: str) -> None:
    loras = [{"name": f"../{letter * 300}{number}", "strength": 1e9} for number in range(30)]
    error = refused(
        lambda: server.stub.Generate(submission(loras=loras)), Code.INVALID_ARGUMENT, r"loras\.0\.name: "
    )
    problems = pb.Problems.FromString(trailing(error)["calotype-problems-bin"]).problems
    assert [problem.field for problem in problems[:2]] == ["request.loras.0.name", "request.loras.1.name"]


@pytest.mark.parametrize("name", BAD_REQUESTS)
@pytest.mark.parametrize("way", ["Generate", "Submit", "GenerateStream"])
def test_bad_values(server: Running, name: str, way: str) -> None:
    values, words = BAD_REQUESTS[name]
    if name in NOT_SAYABLE:
        with pytest.raises(NOT_SAYABLE[name]):
            submission(**values)
        return
    asked = submission(**values)
    if way == "GenerateStream":
        stream = server.stub.GenerateStream(pb.GenerateStreamRequest(submission=asked))
        error = refused(lambda: list(stream), Code.INVALID_ARGUMENT, re.escape(words))
    else:
        error = refused(lambda: getattr(server.stub, way)(asked), Code.INVALID_ARGUMENT, re.escape(words))
    problems = pb.Problems.FromString(trailing(error)["calotype-problems-bin"]).problems
    assert [problem.field for problem in problems] == [f"request.{next(iter(values))}"]
    assert words in problems[0].rule


def test_every_problem_is_said_at_once(server: Running) -> None:
    asked = pb.Submission(
        request=pb.GenerateRequest(width=513, loras=[pb.LoraUse(name="../x")]), priority=1000, deadline_s=-1
    )
    error = refused(lambda: server.stub.Generate(asked, timeout=20), Code.INVALID_ARGUMENT)
    problems = pb.Problems.FromString(trailing(error)["calotype-problems-bin"]).problems
    fields = {problem.field: json.loads(problem.value_json) for problem in problems}
    assert fields["request.width"] == 513
    assert set(fields) == {
        "request.width",
        "request.prompt",
        "request.loras.0.name",
        "priority",
        "deadline_s",
    }


def test_an_unknown_preset(server: Running) -> None:
    asked = submission()
    asked.preset = "int9"
    words = "preset: 'int9' is no preset; did you mean 'int8'.* known: baseline, "
    refused(lambda: server.stub.Submit(asked), Code.INVALID_ARGUMENT, words)


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if name != "half a character"])
def test_bad_names(server: Running, name: str) -> None:
    value, words = BAD_NAMES[name], "is not a usable name"
    asked = submission()
    asked.model = value
    refused(lambda: server.stub.Submit(asked), Code.INVALID_ARGUMENT, words)
    asked = submission(loras=[pb.LoraUse(name=value)], vae=value)
    refused(lambda: server.stub.Submit(asked), Code.INVALID_ARGUMENT, words)
    for method in (server.stub.Load, server.stub.Unload):
        refused(partial(method, pb.ModelName(model=value)), Code.INVALID_ARGUMENT, words)
    for method in (server.stub.Get, server.stub.Cancel):
        refused(partial(method, pb.JobId(id=value)), Code.NOT_FOUND)
    refused(lambda: server.stub.Picture(pb.PictureRequest(job_id=value)), Code.NOT_FOUND)


@pytest.mark.parametrize("name", BAD_PICTURES)
@pytest.mark.parametrize("field", ["image", "mask"])
def test_bad_pictures(server: Running, name: str, field: str) -> None:
    data, words = BAD_PICTURES[name]
    asked = submission()
    asked.image = png()
    setattr(asked, field, data)
    refused(lambda: server.stub.Generate(asked), Code.INVALID_ARGUMENT, f"^{field}: .*({words})")


def test_fields_of_another_proto_are_not_passed_over(server: Running) -> None:
    unknown = pb.GenerateRequest.FromString(
        pb.GenerateRequest(prompt="a").SerializeToString() + b"\xa0\x06\x01"
    )
    asked = pb.Submission(request=unknown)
    refused(lambda: server.stub.Submit(asked), Code.INVALID_ARGUMENT, r"request: has unknown fields \(100\)")


def test_what_is_not_there(server: Running) -> None:
    refused(lambda: server.stub.Get(pb.JobId(id="none")), Code.NOT_FOUND, "no job 'none'")
    asked = submission()
    asked.model = "sd51"
    refused(lambda: server.stub.Submit(asked), Code.NOT_FOUND, "no model 'sd51'")
    made = server.stub.Generate(submission())
    for index in (1, -1):
        request = pb.PictureRequest(job_id=made.job.id, index=index)
        refused(partial(server.stub.Picture, request), Code.NOT_FOUND, "has 1 images")
    for page in (pb.ListRequest(limit=0), pb.ListRequest(limit=1000), pb.ListRequest(state=cast("Any", 77))):
        refused(partial(server.stub.List, page), Code.INVALID_ARGUMENT)
    refused(lambda: server.stub.Submit(pb.Submission()), Code.INVALID_ARGUMENT, "request: is required")


def test_more_than_there_is_memory_for(server: Running) -> None:
    asked = submission(width=16384, height=16384)
    refused(lambda: server.stub.Generate(asked), Code.FAILED_PRECONDITION, "do not fit")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("bad_request", Code.INVALID_ARGUMENT),
        ("not_found", Code.NOT_FOUND),
        ("does_not_fit", Code.FAILED_PRECONDITION),
        ("bad_model_file", Code.FAILED_PRECONDITION),
        ("worker_lost", Code.UNAVAILABLE),
        ("deadline", Code.DEADLINE_EXCEEDED),
        ("internal", Code.INTERNAL),
    ],
)
def test_a_job_that_fails_while_it_is_waited_for(server: Running, kind: str, code: grpc.StatusCode) -> None:
    refused(lambda: server.stub.Generate(submission(f"fail {kind}")), code, "as was asked")
    request = pb.GenerateStreamRequest(submission=submission(f"fail {kind}"))
    refused(lambda: list(server.stub.GenerateStream(request)), code, "as was asked")


def test_a_job_that_somebody_else_cancels(server: Running) -> None:
    call = server.stub.Generate.future(submission("hold for others"), timeout=20)
    held = server.await_(server.service.holding("hold for others"))
    server.stub.Cancel(pb.JobId(id=held.id))
    refused(call.result, Code.CANCELLED, "was cancelled")


def test_a_full_queue_says_when_to_come_back() -> None:
    with running(service=StandIn(most_queued=1)) as full:
        held = full.stub.Submit(submission("hold"))
        error = refused(lambda: full.stub.Submit(submission()), Code.RESOURCE_EXHAUSTED, "the limit is 1")
        assert trailing(error)["retry-after"] == "2.5"
        full.stub.Cancel(pb.JobId(id=held.id))
        assert full.ended(held.id) == "cancelled"
        full.good()


def test_a_deployment_that_drains() -> None:
    with running() as draining:
        draining.service.draining = True
        refused(lambda: draining.stub.Submit(submission()), Code.UNAVAILABLE, "drains")


def test_a_mistake_of_ours_tells_nothing_of_itself(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    error = refused(lambda: server.stub.Submit(submission("bug")), Code.INTERNAL, "the server's log has it")
    assert "secret" not in str(error.details())
    assert "a secret of the service" in caplog.text
    assert trailing(error)["x-request-id"] in str(error.details())


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_messages_that_are_too_large(compression: grpc.Compression) -> None:
    with running(largest_body_bytes=100_000) as small:
        asked = submission("x" * 10_000_000)
        refused(
            lambda: small.stub.Submit(asked, compression=compression),
            Code.RESOURCE_EXHAUSTED,
            "larger than max",
        )
        small.good()


def methods() -> list[tuple[str, bool]]:
    """Every method of the proto, and whether it streams."""
    service = pb.DESCRIPTOR.services_by_name["Calotype"]
    return [(method.name, method.server_streaming) for method in service.methods]


def test_all_the_promised_methods_are_there() -> None:
    promised = "Generate GenerateStream Submit Get List Cancel Picture Models Load Unload Status"
    assert {name for name, _ in methods()} == set(promised.split())


@pytest.mark.parametrize(("name", "streams"), methods())
@pytest.mark.parametrize("token", [None, "Bearer wrong", "alice-key", "Basic alice-key"])
def test_no_method_without_a_key(keyed: Running, name: str, streams: bool, token: str | None) -> None:
    kind = pb.DESCRIPTOR.services_by_name["Calotype"].methods_by_name[name].input_type
    message = getattr(pb, kind.name)()
    method = getattr(keyed.stub, name)

    def call(token: str | None) -> None:
        answer = method(message, metadata=(("authorization", token),) if token else (), timeout=20)
        list(answer) if streams else answer

    refused(lambda: call(token), Code.UNAUTHENTICATED, "API key")
    if name in ("List", "Models", "Status"):
        call("Bearer root-key")
    else:
        # An empty message is no good request of the others, but now its sender is known.
        refused(lambda: call("Bearer root-key"), Code.NOT_FOUND if name in BY_ID else Code.INVALID_ARGUMENT)


def call_silently(server: Running) -> None:
    """Begin a call and never say what it wants."""

    async def call() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            await asyncio.wait_for(channel.stream_unary("/calotype.v1.Calotype/Submit")(), 20)

    asyncio.run(call())


def test_whoever_holds_no_key_holds_nothing() -> None:
    """Neither a call that waits for its message, nor one that is open to anybody, keeps others out."""
    alice = (("authorization", "Bearer alice-key"),)
    with running(keys=StandInKeys(), most_connections=10) as few:
        for _ in range(20):
            refused(partial(call_silently, few), Code.UNAUTHENTICATED, "API key")
        health = health_pb2_grpc.HealthStub(few.channel)
        watching = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watching).status
        for _ in range(20):
            another = health.Watch(health_pb2.HealthCheckRequest())
            refused(partial(next, another), Code.RESOURCE_EXHAUSTED, "too many concurrent health checks")
        assert few.stub.Generate(submission(), metadata=alice).job.state == pb.JOB_STATE_DONE
        watching.cancel()


def test_a_key_leaves_calls_for_other_keys_and_for_health() -> None:
    alice, bob = ((("authorization", f"Bearer {name}-key"),) for name in ("alice", "bob"))
    with running(keys=StandInKeys(), most_connections=4) as few:
        streams = []
        for prompt in ("hold one", "hold two"):
            message = pb.GenerateStreamRequest(submission=submission(prompt))
            streams.append(few.stub.GenerateStream(message, metadata=alice, timeout=20))
            few.await_(few.service.holding(prompt))
        ask = partial(few.stub.Status, pb.StatusRequest(), metadata=alice, timeout=20)
        refused(ask, Code.UNAVAILABLE, "'alice' has 2 requests open and 2 of 4 slots are free")
        assert few.stub.Status(pb.StatusRequest(), metadata=bob, timeout=20).ready
        health = health_pb2_grpc.HealthStub(few.channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status
        few.await_(release(few.service))
        assert [list(stream)[-1].job.state for stream in streams] == [pb.JOB_STATE_DONE] * 2
        assert ask().ready


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:50000", "2001:db8::1"),
        ("ipv6:[::1]:50000", "::1"),
        ("unix:/run/calotype", "unix:/run/calotype"),
    ],
)
def test_the_address_of_a_peer(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::1"),
        ("unix:/run/calotype", "unix:/run/calotype"),
    ],
)
def test_the_addresses_of_one_client(address: str, group: str) -> None:
    assert address_group(address) == group


def test_a_message_that_does_not_come_is_not_waited_for() -> None:
    with running(body_timeout_s=0.05) as hasty:
        words = r"no message arrived within 0\.05 seconds"
        refused(partial(call_silently, hasty), Code.DEADLINE_EXCEEDED, words)
        hasty.good()


def test_no_reflection_without_a_key(keyed: Running) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(keyed.channel)

    def ask() -> Any:
        return list(
            stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        )

    refused(ask, Code.UNAUTHENTICATED)


def test_jobs_of_others_are_not_there(keyed: Running) -> None:
    alice, bob = ((("authorization", f"Bearer {name}-key"),) for name in ("alice", "bob"))
    mine = keyed.stub.Generate(submission(), metadata=alice).job.id
    refused(lambda: keyed.stub.Get(pb.JobId(id=mine), metadata=bob), Code.NOT_FOUND)
    refused(lambda: keyed.stub.Cancel(pb.JobId(id=mine), metadata=bob), Code.NOT_FOUND)
    refused(lambda: keyed.stub.Picture(pb.PictureRequest(job_id=mine), metadata=bob), Code.NOT_FOUND)
    assert not keyed.stub.List(pb.ListRequest(), metadata=bob).jobs
    assert [job.id for job in keyed.stub.List(pb.ListRequest(), metadata=alice).jobs] == [mine]


def test_a_used_up_quota_says_when_to_come_back(keyed: Running) -> None:
    spent = (("authorization", "Bearer spent-key"),)
    error = refused(
        lambda: keyed.stub.Submit(submission(), metadata=spent), Code.RESOURCE_EXHAUSTED, "5 images"
    )
    assert trailing(error)["retry-after"] == "7.2"


def test_a_revoked_key_ends_its_streams() -> None:
    keys, alice = StandInKeys(), (("authorization", "Bearer alice-key"),)
    prompt = "hold until it is revoked"
    with running(keys=keys) as server:
        asked = pb.GenerateStreamRequest(submission=submission(prompt))
        stream = server.stub.GenerateStream(asked, metadata=alice, timeout=20)
        server.await_(server.service.holding(prompt))
        del keys.names["alice-key"]
        server.await_(release(server.service))
        told: list[pb.Progress] = []
        refused(lambda: told.extend(stream), Code.UNAUTHENTICATED, "the API key of 'alice'")
    assert all(each.job.steps_done <= 2 for each in told), "nothing of what came after"


async def release(service: StandIn) -> None:
    service.release()


def test_other_machines_need_a_key() -> None:
    settings = ServeSettings(host="0.0.0.0", grpc_port=0)
    with pytest.raises(RequestError, match="no API key exists"):
        create_server(StandIn(), keys=None, settings=settings)
    assert StandInKeys().check("alice-key")


def test_calls_are_named_from_metadata_to_log(server: Running) -> None:
    with access_lines() as lines:
        ask = partial(server.stub.Get, pb.JobId(id="none"), metadata=(("x-request-id", "abc-1"),))
        error = refused(ask, Code.NOT_FOUND)
        line = lines.of("/calotype.v1.Calotype/Get")
    assert trailing(error)["x-request-id"] == line["request_id"] == "abc-1"
    assert (line["status"], line["client"]) == ("NOT_FOUND", "local")
