"""Who is let in, from where, by which name of the server; what the log says of it."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from prometheus_client import CollectorRegistry

from calotype.core.errors import RequestError
from calotype.serve.api_keys import FILE_NAME, ApiKeys
from calotype.serve.auth import Access, UnknownClientError
from calotype.serve.http.app import create_app
from calotype.serve.http.server import listen, server_config
from calotype.serve.http.static_files import StaticFiles
from calotype.serve.log_format import JsonFormatter
from calotype.serve.settings import ServeSettings
from calotype.serve.workflow.service import WorkflowService
from tests.certificates import certified
from tests.unit.serve.http.access_lines import access_lines
from tests.unit.serve.http.fake_service import StandIn, StandInKeys
from tests.unit.serve.http.running import Running, running

GOOD = {"request": {"prompt": "a red apple", "steps": 2}}
KEY = {"Authorization": "Bearer alice-key"}


OPEN = {
    ("GET", "/healthz"): 200,
    ("GET", "/readyz"): 200,
    ("GET", "/"): 200,
    # It wants to be told a key.
    ("POST", "/calotype/session"): 400,
}


def app_of(**settings: Any) -> FastAPI:
    chosen = ServeSettings(**settings)
    return create_app(
        StandIn(),
        keys=StandInKeys(),
        registry=CollectorRegistry(),
        settings=chosen,
        workflows=cast("WorkflowService", object()),
    )


def addresses() -> list[tuple[str, str]]:
    """Every method of every route there is, but for the page's own files and the socket."""
    found = []
    page = StaticFiles()
    for route in iter_route_contexts(app_of().routes):
        assert route.path
        address = route.path.replace("{job_id}", "job-1").replace("{index}", "0")
        address = address.replace("{name:path}", "emoji").replace("{model:path}", "emoji")
        for name in ("folder", "node_class"):
            address = address.replace(f"{{{name}}}", name)
        if page.serves(address) and address != "/":
            continue
        if address in ("/ws", "/api/ws"):
            continue
        assert "{" not in address
        assert route.methods, f"{route.path} would not be tested"
        found += [(method, address) for method in sorted(route.methods)]
    return found


@pytest.mark.parametrize(("method", "address"), addresses())
def test_no_route_without_a_key(keyed: Running, method: str, address: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"X-API-Key": "wrong"},
        {"Authorization": "Basic alice-key"},
    ):
        answer = keyed.client.request(method, address, headers=headers)
        expected = OPEN.get((method, address), 401)
        assert answer.status_code == expected, (headers, answer.text)
        if expected == 401 and method != "HEAD":
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "unknown_client"


def test_head_is_get_without_the_body(keyed: Running) -> None:
    for address in sorted({address for method, address in addresses() if method == "GET"}):
        answer = keyed.client.head(address)
        assert (answer.status_code, answer.content) == (OPEN.get(("GET", address), 401), b""), address
    whole, head = (keyed.client.request(method, "/v1/jobs", headers=KEY) for method in ("GET", "HEAD"))
    assert (head.status_code, head.headers["content-length"]) == (200, whole.headers["content-length"])
    keyed.client.post("/v1/jobs", json={"request": {"prompt": "hold head"}}, headers=KEY)
    held = keyed.await_(keyed.service.holding("hold head"))
    with access_lines() as lines:
        # Of a job that does not end, as long as anybody would read it.
        assert keyed.client.head(f"/v1/jobs/{held.id}/events", headers=KEY).status_code == 200
        line = lines.of(f"/v1/jobs/{held.id}/events")
    keyed.await_(keyed.service.cancel(held.id))
    assert (line["method"], line["client"], line["bytes"]) == ("HEAD", "alice", 0)
    assert keyed.client.head("/nowhere", headers=KEY).status_code == 404
    refused = keyed.client.head("/v1/images/generations", headers=KEY)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert keyed.client.put("/v1/jobs", headers=KEY).headers["allow"] == "GET, HEAD, POST"


def test_all_the_promised_routes_are_there() -> None:
    promised = {
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/images/edits"),
        ("GET", "/v1/models"),
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/job-1"),
        ("DELETE", "/v1/jobs/job-1"),
        ("POST", "/v1/jobs/job-1/cancel"),
        ("GET", "/v1/jobs/job-1/events"),
        ("GET", "/v1/jobs/job-1/pictures/0"),
        ("GET", "/v1/deployment"),
        ("POST", "/v1/loaded-models"),
        ("DELETE", "/v1/loaded-models/emoji"),
        ("POST", "/sdapi/v1/txt2img"),
        ("POST", "/sdapi/v1/img2img"),
        ("GET", "/sdapi/v1/progress"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
        ("POST", "/v1/jobs/job-1/move"),
        ("GET", "/v1/events"),
        ("GET", "/calotype/system"),
        ("GET", "/calotype/records"),
        *(
            (method, f"{prefix}{path}")
            for prefix in ("", "/api")
            for method, path in (
                ("POST", "/prompt"),
                ("GET", "/prompt"),
                ("GET", "/queue"),
                ("POST", "/queue"),
                ("GET", "/history"),
                ("GET", "/history/job-1"),
                ("POST", "/history"),
                ("POST", "/interrupt"),
                ("GET", "/view"),
                ("POST", "/upload/image"),
                ("POST", "/upload/mask"),
                ("GET", "/object_info"),
                ("GET", "/object_info/node_class"),
                ("GET", "/models"),
                ("GET", "/models/folder"),
                ("GET", "/embeddings"),
                ("GET", "/system_stats"),
            )
        ),
    }
    assert promised <= set(addresses())


def test_no_key_for_an_address_that_is_none_either(keyed: Running) -> None:
    assert keyed.client.get("/nowhere").status_code == 401
    assert keyed.client.get("/nowhere", headers=KEY).status_code == 404
    assert keyed.client.put("/v1/jobs", headers=KEY).status_code == 405


@pytest.mark.parametrize("headers", [KEY, {"X-API-Key": "alice-key"}, {"Authorization": "bearer alice-key"}])
def test_a_key_opens(keyed: Running, headers: dict[str, str]) -> None:
    made = keyed.client.post("/v1/jobs?wait=true", json=GOOD, headers=headers).json()
    assert (made["state"], made["client"]) == ("done", "alice")


def test_jobs_of_others_are_not_there(keyed: Running) -> None:
    mine = keyed.client.post("/v1/jobs?wait=true", json=GOOD, headers=KEY).json()["id"]
    bob, root = {"X-API-Key": "bob-key"}, {"X-API-Key": "root-key"}
    for method, rest in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("GET", "/events"),
        ("GET", "/pictures/0"),
    ):
        assert keyed.client.request(method, f"/v1/jobs/{mine}{rest}", headers=bob).status_code == 404
    assert keyed.client.get("/v1/jobs", headers=bob).json()["jobs"] == []
    assert keyed.client.get(f"/v1/jobs/{mine}", headers=root).status_code == 200
    assert mine in [job["id"] for job in keyed.client.get("/v1/jobs", headers=root).json()["jobs"]]


def test_models_are_changed_by_admins(keyed: Running) -> None:
    root = {"X-API-Key": "root-key"}
    for method, address, body in (
        ("POST", "/v1/loaded-models", {"model": "sdxl"}),
        ("DELETE", "/v1/loaded-models/sdxl", None),
    ):
        refused = keyed.client.request(method, address, json=body, headers=KEY)
        assert refused.status_code == 403
        assert "'alice' is no admin" in refused.json()["error"]["message"]
        assert keyed.client.request(method, address, json=body, headers=root).status_code == 200
    missing = keyed.client.post("/v1/loaded-models", json={"model": "sd51"}, headers=root)
    assert missing.status_code == 404
    names = [model["name"] for model in keyed.client.get("/v1/loaded-models", headers=KEY).json()]
    assert names == ["emoji", "sd15"]


def test_a_used_up_quota_says_when_to_come_back(keyed: Running) -> None:
    answer = keyed.client.post("/v1/jobs", json=GOOD, headers={"X-API-Key": "spent-key"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "8")
    assert "5 images a minute" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_a_key(host: str) -> None:
    settings = ServeSettings(host=host)
    with pytest.raises(RequestError, match="can be reached from other machines, and no API key exists"):
        create_app(StandIn(), keys=None, registry=CollectorRegistry(), settings=settings)
    create_app(StandIn(), keys=StandInKeys(), registry=CollectorRegistry(), settings=settings)


def test_the_first_key_closes_the_server_and_a_lost_key_file_does_not_open_it(tmp_path: Path) -> None:
    with running(keys=ApiKeys(tmp_path), admins=("root",)) as changing:

        def answers(key: str | None) -> int:
            headers = {"X-API-Key": key} if key else {}
            return changing.client.get("/v1/jobs", headers=headers).status_code

        assert answers(None) == 200
        key = ApiKeys(tmp_path).create("ann")
        assert (answers(None), answers(key)) == (401, 200)
        kept = (tmp_path / FILE_NAME).read_bytes()
        for lost in (b"", b"{", b'{"keys": []}', None):
            (tmp_path / FILE_NAME).unlink() if lost is None else (tmp_path / FILE_NAME).write_bytes(lost)
            assert (answers(None), answers("wrong"), answers(key)) == (401, 401, 200), lost
        (tmp_path / FILE_NAME).write_bytes(kept)
        root = ApiKeys(tmp_path).create("root")
        assert (
            changing.client.get("/calotype/system", headers={"X-API-Key": root}).json()["keys_problem"]
            is None
        )
        (tmp_path / FILE_NAME).unlink()
        for asking, says in ((root, "keys.json is missing"), (key, None)):
            problem = changing.client.get("/calotype/system", headers={"X-API-Key": asking}).json()[
                "keys_problem"
            ]
            assert (says in problem) if says else problem is None


def test_a_server_that_other_machines_reach_always_requires_a_key(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    keys.create("ann")
    access = Access(ServeSettings(host="192.0.2.1"), keys)
    keys.revoke("ann")
    with pytest.raises(UnknownClientError):
        access.caller(None)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "192.0.2.7"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": ""},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
@pytest.mark.parametrize("address", ["/v1/jobs", "/healthz", "/v1/images/generations"])
def test_pages_of_other_sites_are_refused(server: Running, headers: dict[str, str], address: str) -> None:
    for method in ("GET", "POST"):
        answer = server.client.request(
            method, address, json=GOOD if method == "POST" else None, headers=headers
        )
        assert answer.status_code in (400, 403), answer.text
    assert server.client.post("/v1/jobs?wait=true", json=GOOD).json()["state"] == "done"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_bodies_that_a_page_could_send_unasked_are_refused(server: Running, kind: str) -> None:
    for address in ("/v1/jobs", "/sdapi/v1/txt2img", "/sdapi/v1/interrupt"):
        answer = server.client.post(address, content=json.dumps(GOOD), headers={"Content-Type": kind})
        assert answer.status_code == 415, answer.text
        assert "send application/json or multipart/form-data" in answer.json()["error"]["message"]
    assert server.client.post("/v1/jobs?wait=true", json=GOOD).json()["state"] == "done"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json"])
def test_of_no_body_anything_may_be_said(server: Running, kind: str) -> None:
    answer = server.client.post("/sdapi/v1/interrupt", content=b"", headers={"Content-Type": kind})
    assert (answer.status_code, answer.request.headers["content-length"]) == (200, "0"), answer.text


def test_pages_of_this_server_are_let_in(server: Running) -> None:
    headers = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert server.client.post("/v1/jobs?wait=true", json=GOOD, headers=headers).status_code == 200
    for host in ("localhost", "127.0.0.1:9", "[::1]:80"):
        assert server.client.get("/v1/jobs", headers={"Host": host}).status_code == 200


def test_names_and_pages_may_be_allowed() -> None:
    page = "https://pictures.example"
    with running(keys=StandInKeys(), allowed_hosts=("box.example",), allowed_origins=(page,)) as open_:
        headers = {"Host": "box.example:8000", "Origin": page, **KEY}
        answer = open_.client.post("/v1/jobs?wait=true", json=GOOD, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page
        asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
        exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
        assert {"x-request-id", "retry-after", "location"} <= set(exposed)
        # OpenAI's client in a browser says more of itself than any list would have.
        asked["Access-Control-Request-Headers"] = "authorization,content-type,x-stainless-lang"
        assert open_.client.options("/v1/jobs", headers=asked).status_code == 200
        asked["Origin"] = "https://evil.example"
        assert open_.client.options("/v1/jobs", headers=asked).status_code == 400
        assert open_.client.get("/v1/jobs", headers={"Host": "other.example", **KEY}).status_code == 403


def test_addresses_are_no_names_that_could_be_pointed_elsewhere() -> None:
    transport = httpx.ASGITransport(app_of(host="0.0.0.0", allowed_hosts=("box",)))

    async def status(host: str) -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://box") as client:
            return (await client.get("/healthz", headers={"Host": host})).status_code

    import asyncio

    expected = {"192.0.2.7:80": 200, "[2001:db8::1]": 200, "box": 200, "localhost": 200, "evil.example": 403}
    assert {host: asyncio.run(status(host)) for host in expected} == expected


def test_requests_are_named_from_header_to_log(server: Running) -> None:
    with access_lines() as lines:
        named = server.client.get("/v1/jobs/none", headers={"X-Request-Id": "abc-1"})
        unnamed = server.client.get("/healthz", headers={"X-Request-Id": "no good\tname"})
        line = lines.of("/v1/jobs/none")
    assert named.headers["x-request-id"] == named.json()["error"]["request_id"] == "abc-1"
    assert len(unnamed.headers["x-request-id"]) == 32
    assert (line["method"], line["status"], line["client"], line["level"]) == ("GET", 404, "local", "info")
    assert line["request_id"] == "abc-1"
    assert line["seconds"] >= 0
    assert line["bytes"] == len(named.content)


def test_a_trace_is_one_line_of_the_log() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord(
            "calotype", logging.ERROR, "", 1, "it %s", ("failed",), (ValueError, error, None)
        )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "two\nlines" in json.loads(text)["trace"]
    assert json.loads(text)["message"] == "it failed"


def test_metrics_status_and_the_missing_page(keyed: Running) -> None:
    metrics = keyed.client.get("/metrics", headers=KEY)
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "stand_in_total 1.0" in metrics.text
    deployment = keyed.client.get("/v1/deployment", headers=KEY).json()
    assert deployment["name"] == "stand-in"
    assert deployment["workers"][0]["models"][0]["name"] == "emoji"
    assert keyed.client.get("/").status_code == 200
    described = keyed.client.get("/openapi.json", headers=KEY).json()
    assert described["paths"]["/healthz"]["get"]["security"] == []
    assert {"bearer": []} in described["security"]


def test_ports_are_taken_or_said_not_to_be() -> None:
    with listen(ServeSettings()) as taken:
        # asyncio looks at this before it switches off the delay of small answers.
        assert taken.proto == socket.IPPROTO_TCP
        port = taken.getsockname()[1]
        with pytest.raises(RequestError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listen(ServeSettings(http_port=port))
    with pytest.raises(RequestError, match=r"cannot listen on nowhere\.invalid:0"):
        listen(ServeSettings(host="nowhere.invalid"))
    with listen(ServeSettings(http_port=port)) as again:
        assert again.getsockname() == ("127.0.0.1", port)


def test_idle_connections_are_closed_by_clients_first() -> None:
    """Or a request that is on its way meets the end, as of OpenAI's client, which is one of httpx."""
    kept_s = httpx.Limits().keepalive_expiry
    assert kept_s is not None
    assert server_config(FastAPI(), ServeSettings()).timeout_keep_alive > 2 * kept_s


def test_tls(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "IP:127.0.0.1")
    with running(tls_certificate=certificate, tls_key=key) as secure:
        import ssl

        context = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(verify=context) as client:
            assert client.get(f"{secure.url}/healthz").json() == {"alive": True}
            answer = client.post(
                f"{secure.url}/v1/images/generations", json={"prompt": "a", "response_format": "url"}
            )
        assert answer.json()["data"][0]["url"].startswith(f"{secure.url}/v1/jobs/")
    with pytest.raises(ValueError, match="give `tls_key` too"):
        ServeSettings(tls_certificate=certificate)
