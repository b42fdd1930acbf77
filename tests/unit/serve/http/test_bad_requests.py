"""Every bad request is refused with the reason, and the next good one is served."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.unit.serve.http.bad_requests import BAD_NAMES, BAD_PICTURES, BAD_REQUESTS, DEEP_JSON
from tests.unit.serve.http.fake_service import StandIn, StandInKeys, png
from tests.unit.serve.http.running import Running, running

JSON = {"Content-Type": "application/json"}
GOOD = {"request": {"prompt": "a red apple", "steps": 2}}


@pytest.fixture(autouse=True)
def _still_serving(server: Running) -> Iterator[None]:
    before = len(server.await_(server.service.jobs(limit=1000)))
    yield
    assert len(server.await_(server.service.jobs(limit=1000))) == before, "a bad request made a job"
    answer = server.client.post("/v1/jobs?wait=true", json=GOOD)
    assert answer.json()["state"] == "done"


def refused(answer: httpx.Response, status: int, words: str = "") -> dict[str, Any]:
    assert answer.status_code == status, answer.text[:500]
    error: dict[str, Any] = answer.json()["error"]
    assert re.search(words, error["message"]), error["message"][:500]
    assert error["request_id"] == answer.headers["x-request-id"]
    assert len(answer.content) < 20_000
    return error


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_values(server: Running, name: str) -> None:
    values, words = BAD_REQUESTS[name]
    body = json.dumps({"request": {"prompt": "a red apple", **values}})
    error = refused(server.client.post("/v1/jobs", content=body, headers=JSON), 400, re.escape(words))
    assert error["problems"][0]["field"] == f"request.{next(iter(values))}"
    assert error["problems"][0]["rule"]


@pytest.mark.parametrize("address", ["/v1/images/generations", "/sdapi/v1/txt2img"])
@pytest.mark.parametrize("name", ["10 MB prompt", "NUL in the prompt", "steps 10^9", "seed 2^64", "seed 1.5"])
def test_bad_values_in_other_dialects(server: Running, address: str, name: str) -> None:
    values, _ = BAD_REQUESTS[name]
    error = refused(server.client.post(address, json={"prompt": "a", **values}), 400)
    assert error["param"] == next(iter(values))


def test_half_a_character_is_refused_even_where_nobody_looks(server: Running) -> None:
    """What is taken and has no effect is told back, for which it has to be text."""
    body = json.dumps({"prompt": "a", "comments": {"a": ["b", "c\ud800"]}})
    error = refused(server.client.post("/sdapi/v1/txt2img", content=body, headers=JSON), 400)
    assert (error["param"], error["problems"][0]["rule"]) == (
        "comments.a.1",
        "holds half a character at position 1; remove it",
    )


@pytest.mark.parametrize(
    ("address", "field"),
    [("/v1/jobs", "request.steps"), ("/v1/images/generations", "steps"), ("/sdapi/v1/txt2img", "steps")],
)
def test_limits_of_the_deployment_are_told_in_the_same_words(
    server: Running, address: str, field: str
) -> None:
    values = {"prompt": "a", "steps": 600}
    body = {"request": values} if address == "/v1/jobs" else values
    assert refused(server.client.post(address, json=body), 400, "the limit here is 500")["param"] == field


def test_every_problem_is_said_at_once(server: Running) -> None:
    body = {
        "request": {"prompt": "a\0", "width": 513, "steps": 0, "loras": [{"name": "../x"}]},
        "priority": 1000,
    }
    error = refused(server.client.post("/v1/jobs", json=body), 400)
    fields = {problem["field"]: problem["value"] for problem in error["problems"]}
    assert fields == {
        "request.prompt": "a\0",
        "request.width": 513,
        "request.steps": 0,
        "request.loras.0.name": "../x",
        "priority": 1000,
    }


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("place", ["model", "lora", "vae", "load"])
def test_bad_names(server: Running, name: str, place: str) -> None:
    value = BAD_NAMES[name]
    request: dict[str, Any] = {"prompt": "a"}
    body: dict[str, Any] = {"request": request}
    if place == "model":
        body["model"] = value
    elif place == "lora":
        request["loras"] = [{"name": value}]
    elif place == "vae":
        request["vae"] = value
    address = "/v1/loaded-models" if place == "load" else "/v1/jobs"
    content = json.dumps({"model": value} if place == "load" else body)
    refused(
        server.client.post(address, content=content, headers=JSON),
        400,
        "is not a usable name|half a character",
    )


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    "name", ["..%2fx", "..%5cx", "%252e%252e", "x%00y", "%2fetc%2fpasswd", "x" * 10_000, "%ff"]
)
def test_bad_names_in_addresses(server: Running, method: str, name: str) -> None:
    for address in (f"/v1/jobs/{name}", f"/v1/jobs/{name}/pictures/0", f"/v1/loaded-models/{name}"):
        answer = server.client.request(method, address)
        assert answer.status_code in (400, 404, 405), answer.text
        assert answer.json()["error"]["message"]


def test_more_than_there_is_memory_for(server: Running) -> None:
    body = {"request": {"prompt": "a", "width": 16384, "height": 16384}}
    assert refused(server.client.post("/v1/jobs", json=body), 422, "do not fit")["code"] == "does_not_fit"


@pytest.mark.parametrize(
    "body",
    [DEEP_JSON, b'{"a":' * 250_000, b'{"request":' + DEEP_JSON + b"}", b'"' + b"\\" * 12 + b'"' + DEEP_JSON],
    ids=["lists", "objects", "inside", "behind a string"],
)
def test_json_that_is_too_deep(server: Running, body: bytes) -> None:
    refused(
        server.client.post("/v1/jobs", content=body, headers=JSON), 400, "nested more than 32 levels deep"
    )


def test_a_form_is_no_way_around_the_depth(server: Running) -> None:
    answer = server.client.post("/v1/jobs", data={"submission": DEEP_JSON.decode()}, files={"image": b"x"})
    refused(answer, 400, "nested more than 32 levels deep")


def test_brackets_inside_strings_are_no_depth(server: Running) -> None:
    prompt = '[{"' * 40 + "\\"
    refused(
        server.client.post("/v1/jobs", json={"request": {"prompt": prompt, "steps": 0}}),
        400,
        "^request.steps",
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" + b"[]," * 100_000 + b"1]", "more than 50000 parts"),
        (b"[" + b"1," * 300_000 + b"1]", "more than 200000 values"),
        (b'{"request": {"prompt": "a"', "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        ('{"request": {"prompt": "∀"}}'.encode("utf-16"), "is not valid JSON"),
        (b'{"request": {"prompt": "a", "seed": ' + b"1" * 5000 + b"}}", "is not valid JSON"),
        (b"[1]", "is not a JSON object"),
        (b"", "is not valid JSON"),
        (b'{"request": []}', "request"),
        (b"{}", "request: is required"),
        (b'{"request": {"prompt": "a", "loras": {"name": "x"}}}', "loras"),
    ],
)
def test_json_that_is_none(server: Running, body: bytes, words: str) -> None:
    refused(server.client.post("/v1/jobs", content=body, headers=JSON), 400, words)


def test_compressed_bodies_are_not_read(server: Running) -> None:
    bomb = gzip.compress(b'{"request": {"prompt": "' + bytes(50_000_000) + b'"}}')
    headers = {**JSON, "Content-Encoding": "gzip"}
    refused(server.client.post("/v1/jobs", content=bomb, headers=headers), 415, "without Content-Encoding")


@pytest.mark.parametrize("name", BAD_PICTURES)
@pytest.mark.parametrize("way", ["base64", "form", "edit", "img2img"])
def test_bad_pictures(server: Running, name: str, way: str) -> None:
    data, words = BAD_PICTURES[name]
    text = base64.b64encode(data).decode()
    if way == "base64":
        answer = server.client.post("/v1/jobs", json={**GOOD, "image": text})
    elif way == "form":
        files = {"image": ("a.png", data, "image/png")}
        answer = server.client.post("/v1/jobs", data={"submission": json.dumps(GOOD)}, files=files)
    elif way == "edit":
        files = {"image": ("a.png", data, "image/png")}
        answer = server.client.post("/v1/images/edits", data={"prompt": "a"}, files=files)
    else:
        answer = server.client.post("/sdapi/v1/img2img", json={"prompt": "a", "init_images": [text]})
    refused(answer, 400, words)


@pytest.mark.parametrize("image", ["not base64!", "data:text/plain,x", 7, ["x"], {"path": "/etc/passwd"}])
def test_pictures_that_are_no_base64(server: Running, image: object) -> None:
    refused(server.client.post("/v1/jobs", json={**GOOD, "image": image}), 400, "^image: ")


def test_a_mask_without_its_picture(server: Running) -> None:
    text = base64.b64encode(b"x").decode()
    refused(server.client.post("/v1/jobs", json={**GOOD, "mask": text}), 400, "a mask needs the image")


def test_forms_with_something_else_in_them(server: Running) -> None:
    long = {"image": ("x" * 10_000, b"x")}
    refused(server.client.post("/v1/jobs", data={"submission": "{}"}, files=long), 400)
    files = {"imaeg": b"x"}
    answer = server.client.post("/v1/jobs", data={"submission": "{}"}, files=files)
    refused(answer, 400, "did you mean 'image'")
    refused(server.client.post("/v1/jobs", files={"image": b"x"}), 400, "submission: is required")
    answer = server.client.post("/v1/jobs", content=b"x", headers={"Content-Type": "multipart/form-data"})
    refused(answer, 400)


FORMS = {"/v1/jobs": {"submission": json.dumps(GOOD)}, "/v1/images/edits": {"prompt": "a hat"}}


@pytest.mark.parametrize("name", ["image", "mask"])
@pytest.mark.parametrize("address", FORMS)
def test_a_file_s_name_in_a_form_is_no_picture(server: Running, address: str, name: str) -> None:
    other = {"image": "mask", "mask": "image"}[name]
    texts = {**FORMS[address], name: "room.png"}
    answer = server.client.post(address, data=texts, files={other: ("a.png", png())})
    refused(answer, 400, f"^{name}: is an image and was sent as text")


@pytest.mark.parametrize("address", FORMS)
def test_a_file_in_a_form_is_no_text(server: Running, address: str) -> None:
    ((name, text),) = FORMS[address].items()
    files = {"image": ("a.png", png()), name: ("text.txt", text.encode())}
    refused(server.client.post(address, files=files), 400, f"^{name}: is text and was sent as a file")


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_that_are_too_large(chunked: bool) -> None:
    with running(largest_body_bytes=4096) as small:
        content: Any = (b" " * 1000 for _ in range(100)) if chunked else b" " * 100_000
        refused(
            small.client.post("/v1/jobs", content=content, headers=JSON), 413, "limit of one request is 4096"
        )
        assert small.client.post("/v1/jobs?wait=true", json=GOOD).json()["state"] == "done"


def test_bodies_that_are_too_much_together() -> None:
    with running(most_bytes_in_flight=4096, largest_body_bytes=100_000) as small:
        waiting = HTTPConnection(small.url.removeprefix("http://"), timeout=20)
        body = json.dumps({"request": {"prompt": "hold together"}}) + " " * 3000
        waiting.request("POST", "/v1/jobs?wait=true", body, JSON)
        held = small.await_(small.service.holding("hold together"))
        large = json.dumps(GOOD) + " " * 3000
        refused(
            small.client.post("/v1/jobs", content=large, headers=JSON),
            503,
            "requests in service have 4096 bytes",
        )
        small.await_(small.service.cancel(held.id))
        assert json.load(waiting.getresponse())["state"] == "cancelled"
        waiting.close()
        assert small.client.post("/v1/jobs", content=large, headers=JSON).status_code == 202


def test_bodies_of_one_client_leave_room_to_others() -> None:
    with running(keys=StandInKeys(), most_bytes_in_flight=10_000, largest_body_bytes=9000) as small:

        def post(client: str, spaces: int) -> httpx.Response:
            content = json.dumps(GOOD) + " " * spaces
            return small.client.post(
                "/v1/jobs", content=content, headers={**JSON, "X-API-Key": f"{client}-key"}
            )

        waiting = HTTPConnection(small.url.removeprefix("http://"), timeout=20)
        body = json.dumps({"request": {"prompt": "hold my place"}}) + " " * 3000
        waiting.request("POST", "/v1/jobs?wait=true", body, {**JSON, "X-API-Key": "alice-key"})
        held = small.await_(small.service.holding("hold my place"))
        words = "requests of 'alice' in service have .* one client may use no more than is free"
        refused(post("alice", 3000), 503, words)
        # Another client finds that room, also for one request that is larger than what is left then.
        assert post("bob", 3000).status_code == post("bob", 6000).status_code == 202
        small.await_(small.service.cancel(held.id))
        assert json.load(waiting.getresponse())["state"] == "cancelled"
        waiting.close()
        assert post("alice", 3000).status_code == 202
        assert post("alice", 8000).status_code == 202


def test_headers_that_are_too_large(server: Running) -> None:
    # The server hangs up while they are still being sent, so that the answer may be lost.
    with contextlib.suppress(httpx.TransportError):
        assert server.client.get("/v1/jobs", headers={"X-Long": "x" * 2_000_000}).status_code == 400


def test_a_body_that_never_arrives() -> None:
    with running(body_timeout_s=0.05) as hasty:
        connection = HTTPConnection(hasty.url.removeprefix("http://"), timeout=20)
        connection.request("POST", "/v1/jobs", b"{", {**JSON, "Content-Length": "100"})
        answer = connection.getresponse()
        assert answer.status == 408
        assert "was not complete after 0.05 seconds" in json.load(answer)["error"]["message"]
        connection.close()
        assert hasty.client.post("/v1/jobs?wait=true", json=GOOD).json()["state"] == "done"


def connected(server: Running, said: bytes) -> socket.socket:
    place = urlsplit(server.url)
    found = socket.create_connection((place.hostname, place.port), timeout=20)
    found.sendall(said)
    return found


def test_connections_that_never_say_what_they_want_are_closed() -> None:
    with running(keys=StandInKeys(), body_timeout_s=0.05) as hasty, connected(hasty, b"") as slow:
        assert slow.recv(1) == b""


def test_who_was_refused_cannot_go_on_talking() -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with (
        running(keys=StandInKeys(), body_timeout_s=0.5) as hasty,
        connected(hasty, head + b"Content-Length: 1000000\r\n\r\n") as slow,
    ):
        assert slow.recv(12) == b"HTTP/1.1 401"
        slow.sendall(b"x")
        with contextlib.suppress(ConnectionError):
            while slow.recv(4096):
                pass


@pytest.mark.parametrize(("method", "address"), [("POST", "/calotype/session"), ("GET", "/healthz")])
def test_what_anybody_may_ask_takes_no_large_body(server: Running, method: str, address: str) -> None:
    answer = server.client.request(method, address, content=b"{" + b" " * 100_000, headers=JSON)
    refused(answer, 413, "the limit of one request is 65536")


def test_a_form_says_its_text_in_utf_8(server: Running) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=B; charset=punycode"}
    body = b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na-99\r\n--B--\r\n'
    answer = server.client.post("/v1/images/edits", content=body, headers=form)
    refused(answer, 415, "charset 'punycode' is not supported; send UTF-8")


def test_a_full_queue_says_when_to_come_back() -> None:
    with running(service=StandIn(most_queued=2)) as full:
        held = [full.client.post("/v1/jobs", json={"request": {"prompt": "hold"}}) for _ in range(2)]
        for address, body in (
            ("/v1/jobs", GOOD),
            ("/v1/images/generations", {"prompt": "a"}),
            ("/sdapi/v1/txt2img", {"prompt": "a"}),
        ):
            answer = full.client.post(address, json=body)
            refused(answer, 429, "2 jobs wait, the limit is 2")
            assert answer.headers["retry-after"] == "3"
        for answer in held:
            full.client.post(f"/v1/jobs/{answer.json()['id']}/cancel")
            assert full.ended(answer.json()["id"]) == "cancelled"
        assert full.client.post("/v1/jobs?wait=true", json=GOOD).json()["state"] == "done"


def test_a_mistake_of_ours_tells_nothing_of_itself(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    answer = server.client.post("/v1/jobs", json={"request": {"prompt": "bug"}})
    error = refused(answer, 500, f"the server's log has it under request {answer.headers['x-request-id']}")
    assert error["code"] == "internal"
    assert "secret" not in answer.text
    assert "a secret of the service" in caplog.text


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("bad_request", 400),
        ("not_found", 404),
        ("does_not_fit", 422),
        ("bad_model_file", 422),
        ("internal", 500),
        ("worker_lost", 503),
        ("deadline", 504),
    ],
)
@pytest.mark.parametrize("address", ["/v1/images/generations", "/sdapi/v1/txt2img"])
def test_a_job_that_fails_while_it_is_waited_for(
    server: Running, address: str, kind: str, status: int
) -> None:
    answer = server.client.post(address, json={"prompt": f"fail {kind}"})
    assert refused(answer, status, "as was asked")["code"] == kind
    server.client.delete(f"/v1/jobs/{server.await_(server.service.jobs(limit=1))[0].id}")


def test_a_deployment_that_drains() -> None:
    with running() as draining:
        draining.service.draining = True
        refused(draining.client.post("/v1/jobs", json=GOOD), 503, "drains")
        assert draining.client.get("/healthz").status_code == 200
        assert draining.client.get("/readyz").status_code == 503
        draining.service.draining = False
        assert draining.client.get("/readyz").status_code == 200
