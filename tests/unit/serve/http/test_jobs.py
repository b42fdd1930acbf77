"""The native interface, asked over a real connection."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import islice
from typing import Any

import httpx
import pytest
from PIL import Image

from calotype.spec.job import Job
from tests.unit.serve.http.fake_service import StandInKeys, png
from tests.unit.serve.http.running import Running, running


def job(prompt: str = "a red apple", **changes: Any) -> dict[str, Any]:
    return {"request": {"prompt": prompt, "steps": 4, **changes}}


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Server-sent events as they arrive."""
    name, data = "", ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = value
        elif not line and data:
            yield name, json.loads(data)
            name, data = "", ""


def test_a_job_is_accepted_at_once_and_made_then(server: Running) -> None:
    answer = server.client.post("/v1/jobs", json=job(seed=7))
    assert answer.status_code == 202
    accepted = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{accepted['id']}"
    assert accepted["state"] == "queued"
    assert accepted["client"] == "local"
    assert server.ended(accepted["id"]) == "done"
    made = server.client.get(answer.headers["location"]).json()
    assert made["state"] == "done"
    assert made["request"]["seed"] == 7
    assert len(made["pictures"]) == 1


def test_a_seed_is_drawn_and_recorded_where_none_is_given(server: Running) -> None:
    made = [server.client.post("/v1/jobs?wait=true", json=job()).json() for _ in range(3)]
    seeds = [one["request"]["seed"] for one in made]
    assert len(set(seeds)) == 3
    assert [one["pictures"][0]["seed"] for one in made] == seeds
    assert server.client.post("/v1/jobs", json=job(seed=0)).json()["request"]["seed"] == 0


@pytest.mark.parametrize("in_header", [True, False])
def test_a_submission_without_a_seed_that_is_sent_again_is_the_same_job(
    server: Running, in_header: bool
) -> None:
    headers = {"Idempotency-Key": "again"} if in_header else {}
    body = job() if in_header else {**job(), "idempotency_key": "again, inside"}
    first, second = (server.client.post("/v1/jobs", json=body, headers=headers).json() for _ in range(2))
    assert second["id"] == first["id"]
    assert second["request"] == first["request"]


def test_a_job_chooses_its_preset(server: Running) -> None:
    made = server.client.post("/v1/jobs?wait=true", json={**job(), "preset": "int8"}).json()
    assert (made["state"], made["preset"]) == ("done", "int8")
    assert server.client.get("/v1/jobs", params={"limit": 1}).json()["jobs"][0]["preset"] == "int8"
    refused = server.client.post("/v1/jobs", json={**job(), "preset": "int9"})
    assert refused.status_code == 400
    (problem,) = refused.json()["error"]["problems"]
    assert (problem["field"], problem["value"]) == ("preset", "int9")
    assert "'int9' is no preset; did you mean 'int8'" in problem["rule"]


@pytest.mark.parametrize("ping_s", [0.05, 3600.0])
def test_a_revoked_key_ends_its_events(ping_s: float) -> None:
    """At the next event, or where none comes, at the next sign of life."""
    keys, alice = StandInKeys(), {"X-API-Key": "alice-key"}
    with running(keys=keys, ping_s=ping_s) as server:
        made = server.client.post("/v1/jobs", json=job("hold"), headers=alice).json()
        server.await_(server.service.holding("hold"))
        with server.client.stream("GET", f"/v1/jobs/{made['id']}/events", headers=alice) as response:
            lines = response.iter_lines()
            while not next(lines).startswith("data"):
                pass
            del keys.names["alice-key"]
            if ping_s > 60:
                server.call(server.service.release)
            rest = list(islice(lines, 500))
            assert len(rest) < 500, "it goes on"
            assert not [line for line in rest if line.startswith("event")]
        server.call(server.service.release)


@pytest.mark.parametrize(
    ("headers", "address"), [({}, "/v1/jobs?wait=true"), ({"Prefer": "respond-async, wait=20"}, "/v1/jobs")]
)
def test_a_client_may_wait(server: Running, headers: dict[str, str], address: str) -> None:
    answer = server.client.post(address, json=job(), headers=headers)
    assert answer.status_code == 200
    assert answer.json()["state"] == "done"


def test_a_wait_that_is_over_answers_with_what_there_is(server: Running) -> None:
    answer = server.client.post("/v1/jobs", json=job("hold"), headers={"Prefer": "wait=0"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=0"
    assert answer.json()["state"] in ("queued", "running")
    server.client.post(f"/v1/jobs/{answer.json()['id']}/cancel")


def test_a_picture_is_a_file_with_its_hash_for_a_name(server: Running) -> None:
    made = server.client.post("/v1/jobs?wait=true", json=job(width=64, height=32, count=2)).json()
    address = f"/v1/jobs/{made['id']}/pictures/1"
    answer = server.client.get(address)
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (64, 32)
    digest = hashlib.sha256(answer.content).hexdigest()
    assert answer.headers["etag"] == f'"{digest}"'
    assert made["pictures"][1]["sha256"] == digest
    again = server.client.get(address, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert server.client.get(f"/v1/jobs/{made['id']}/pictures/2").status_code == 404


def test_pages_of_jobs_hold_each_once(server: Running) -> None:
    made = [server.client.post("/v1/jobs?wait=true", json=job()).json()["id"] for _ in range(5)]
    seen: list[str] = []
    before: dict[str, str] = {}
    while len(seen) < 5:
        page = server.client.get("/v1/jobs", params={"limit": 2, "state": "done", **before}).json()
        seen += [one["id"] for one in page["jobs"]]
        before = {"before": page["next"]}
    assert seen[:5] == made[::-1]
    assert server.client.get("/v1/jobs", params={"state": "failed", "limit": 200}).json() == {
        "jobs": [],
        "next": None,
    }


def test_who_forgets_page_by_page_comes_to_the_last(server: Running) -> None:
    made = {server.client.post("/v1/jobs?wait=true", json=job()).json()["id"] for _ in range(5)}
    forgotten, asked = set(), {"limit": "2", "state": "done"}
    while True:
        answer = server.client.get("/v1/jobs", params=asked)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for one in page["jobs"]:
            assert server.client.delete(f"/v1/jobs/{one['id']}").status_code == 204
            forgotten.add(one["id"])
        if page["next"] is None:
            break
        asked["before"] = page["next"]
    assert made <= forgotten


def test_a_key_makes_nothing_twice(server: Running) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = (server.client.post("/v1/jobs", json=job(), headers=headers).json() for _ in range(2))
    assert first["id"] == second["id"]
    body = {**job(), "idempotency_key": "other"}
    refused = server.client.post("/v1/jobs", json=body, headers=headers)
    assert refused.status_code == 400
    assert "'other' in the body differs from 'once'" in refused.json()["error"]["message"]


def test_cancel_and_forget(server: Running) -> None:
    held = server.client.post("/v1/jobs", json=job("hold")).json()["id"]
    assert server.client.delete(f"/v1/jobs/{held}").status_code == 400
    assert server.client.post(f"/v1/jobs/{held}/cancel").status_code == 200
    assert server.ended(held) == "cancelled"
    assert server.client.delete(f"/v1/jobs/{held}").status_code == 204
    gone = server.client.get(f"/v1/jobs/{held}")
    assert gone.status_code == 404
    assert gone.json()["error"]["code"] == "not_found"


def test_a_failed_job_says_why(server: Running) -> None:
    answer = server.client.post("/v1/jobs?wait=true", json=job("fail does_not_fit"))
    assert answer.status_code == 200
    assert answer.json()["failure"] == {"kind": "does_not_fit", "message": "as was asked"}


@pytest.mark.parametrize("form", [False, True])
def test_pictures_are_given_as_text_or_as_files(server: Running, form: bool) -> None:
    image, mask = png(24, 16), png(24, 16, (255, 255, 255))
    body = job(strength=0.5)
    if form:
        files = {"image": ("a.png", image, "image/png"), "mask": ("b.png", mask, "image/png")}
        answer = server.client.post("/v1/jobs?wait=true", data={"submission": json.dumps(body)}, files=files)
    else:
        text = {
            "image": "data:image/png;base64," + base64.b64encode(image).decode(),
            "mask": base64.b64encode(mask).decode(),
        }
        answer = server.client.post("/v1/jobs?wait=true", json={**body, **text})
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert server.service.given[made["id"]] == (image, mask)
    assert made["request"]["image"]["sha256"] == hashlib.sha256(image).hexdigest()


@pytest.mark.parametrize("name", ["../../x.png", "/etc/passwd", "..\\x", "x\0y"])
def test_names_of_given_files_mean_nothing(server: Running, name: str) -> None:
    files = {"image": (name, png(), "image/png")}
    answer = server.client.post("/v1/jobs?wait=true", data={"submission": json.dumps(job())}, files=files)
    assert answer.json()["state"] == "done", answer.text
    assert answer.json()["request"]["image"]["path"] == "(in memory)"


def test_events_tell_a_job_from_its_present_state_to_its_end(server: Running) -> None:
    held = server.client.post("/v1/jobs", json=job("hold events")).json()["id"]
    server.await_(server.service.holding("hold events"))
    with server.client.stream("GET", f"/v1/jobs/{held}/events?previews=true") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = events(answer)
        first = next(told)
        server.call(server.service.release)
        rest = list(told)
    assert first[0] == "state"
    assert (first[1]["state"], first[1]["steps_done"]) == ("running", 2)
    steps = [values for name, values in rest if name == "step"]
    assert steps[-1]["steps_done"] == steps[-1]["steps_total"] == 4
    assert Image.open(io.BytesIO(base64.b64decode(steps[-1]["preview"].partition(",")[2]))).size == (8, 8)
    assert rest[-1][0] == "state"
    assert rest[-1][1]["state"] == "done"


def test_leaving_the_events_leaves_the_job_alone(server: Running) -> None:
    held = server.client.post("/v1/jobs", json=job("hold and look")).json()["id"]
    server.await_(server.service.holding("hold and look"))
    with server.client.stream("GET", f"/v1/jobs/{held}/events") as answer:
        assert next(events(answer))[0] == "state"
    # The one who left is no longer told of anything, and the next one is, from the present state on.
    with server.client.stream("GET", f"/v1/jobs/{held}/events") as answer:
        told = events(answer)
        assert next(told)[1]["state"] == "running"
        server.call(server.service.release)
        assert list(told)[-1][1]["state"] == "done"


def test_an_event_source_that_comes_back_after_the_end_is_told_to_stop(server: Running) -> None:
    made = server.client.post("/v1/jobs?wait=true", json=job()).json()["id"]
    with server.client.stream("GET", f"/v1/jobs/{made}/events") as answer:
        lines = list(answer.iter_lines())
    assert "id: done" in lines
    assert "retry: 1000" in lines
    again = server.client.get(f"/v1/jobs/{made}/events", headers={"Last-Event-ID": "done"})
    assert again.status_code == 204


def test_silence_is_broken_by_signs_of_life() -> None:
    with running(ping_s=0.01) as quiet:
        held = quiet.client.post("/v1/jobs", json=job("hold")).json()["id"]
        with quiet.client.stream("GET", f"/v1/jobs/{held}/events") as answer:
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith(":")) == ": still here"
        quiet.client.post(f"/v1/jobs/{held}/cancel")


@pytest.mark.parametrize("comes_back", [False, True], ids=["for good", "with a key"])
@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/v1/jobs?wait=true", {"request": {"prompt": "hold a job"}}),
        ("/v1/images/generations", {"prompt": "hold a generation"}),
        ("/v1/images/generations", {"prompt": "hold a stream", "stream": True}),
        ("/sdapi/v1/txt2img", {"prompt": "hold a txt2img"}),
    ],
    ids=["job", "generation", "stream", "txt2img"],
)
def test_whoever_waits_and_leaves_cancels_the_job_unless_it_may_come_back(
    server: Running, address: str, body: dict[str, Any], comes_back: bool
) -> None:
    prompt = body.get("request", body)["prompt"]
    left = leave(server, address, body, {"Idempotency-Key": prompt} if comes_back else {}, prompt)
    if comes_back:
        server.call(server.service.release)
    assert server.ended(left.id) == ("done" if comes_back else "cancelled")
    if not comes_back:
        assert server.await_(server.service.job(left.id)).steps_done == 2
    assert server.client.post("/v1/jobs?wait=true", json=job()).json()["state"] == "done"


def leave(server: Running, address: str, body: Any, headers: dict[str, str], prompt: str) -> Job:
    """Ask, wait until the job is half done, and hang up."""
    connection = HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", address, json.dumps(body), {"Content-Type": "application/json", **headers})
    try:
        return server.await_(server.service.holding(prompt))
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("address", "body", "status"),
    [
        ("/v1/jobs?wait=true", {"request": {"prompt": "hold stop"}}, 202),
        ("/v1/images/generations", {"prompt": "hold stop"}, 503),
        ("/v1/images/generations", {"prompt": "hold stop", "stream": True}, 200),
        ("/sdapi/v1/txt2img", {"prompt": "hold stop"}, 503),
    ],
    ids=["job", "generation", "stream", "txt2img"],
)
def test_a_deployment_that_stops_loses_no_job_by_it(
    server: Running, address: str, body: dict[str, Any], status: int
) -> None:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    connection.request("POST", address, json.dumps(body), {"Content-Type": "application/json"})
    held = server.await_(server.service.holding("hold stop"))
    server.call(server.service.stop)
    answer = connection.getresponse()
    assert answer.status == status
    text = answer.read().decode()
    assert ("it continues at the next start" in text) == (status != 202)
    connection.close()
    server.call(server.service.release)
    assert server.ended(held.id) == "done"
