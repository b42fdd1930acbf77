"""Several clients have files of the same name: each finds its own, and an admin can name whose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from calotype.serve.api_keys import ApiKeys
from calotype.serve.lifecycle.daemon import deploy, stop
from tests.unit.serve.workflow.conftest import graph, planned
from tests.unit.serve.workflow.test_comfy_files import loading, opened, png

RED, GREEN, BLUE = (200, 0, 0), (0, 200, 0), (0, 0, 200)


class KeyedClient:
    """One client of a deployment with keys."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(base_url=url, headers={"X-API-Key": key}, timeout=60)

    def upload(
        self, name: str, color: tuple[int, ...], path: str = "/upload/image", **fields: str
    ) -> dict[str, Any]:
        answer = self.http.post(path, files={"image": (name, png(color), "image/png")}, data=fields)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def view(self, name: str, kind: str = "input", **query: str) -> httpx.Response:
        return self.http.get("/view", params={"filename": name, "type": kind, **query})

    def color(self, name: str, kind: str = "input", **query: str) -> Any:
        answer = self.view(name, kind, **query)
        assert answer.status_code == 200, answer.text
        return opened(answer.content).getpixel((0, 0))

    def run(self, prompt: dict[str, Any]) -> str:
        answer = self.http.post("/prompt", json={"prompt": prompt})
        assert answer.status_code == 200, answer.text
        job_id = str(answer.json()["prompt_id"])
        # The stream of events ends with the workflow.
        self.http.get(f"/v1/jobs/{job_id}/events").raise_for_status()
        return job_id

    def saved(self, job_id: str) -> dict[str, str]:
        (image,) = self.http.get(f"/history/{job_id}").json()[job_id]["outputs"]["save"]["images"]
        assert self.http.get("/history").json()[job_id]["outputs"]["save"]["images"] == [image]
        found: dict[str, str] = image
        return found


Connect = Callable[[str], KeyedClient]


@pytest.fixture(scope="module")
def connect_as(surroundings: Path) -> Iterator[Connect]:
    """A client of the deployment by its name; `root` is an admin."""
    keys = ApiKeys(surroundings / "secret")
    tokens = {name: keys.create(name) for name in ("ann", "bob", "root")}
    plan = planned(
        "shared", reached={"admins": ("root",), "http_port": 0}, keys_folder=surroundings / "secret"
    )
    running = deploy(plan)
    clients: list[KeyedClient] = []

    def connect(name: str) -> KeyedClient:
        clients.append(KeyedClient(running.http, tokens[name]))
        return clients[-1]

    yield connect
    for client in clients:
        client.http.close()
    stop(running, at_once=True)


def test_each_client_and_an_admin_too_sees_its_own_upload_first(connect_as: Connect) -> None:
    ann, bob, root = (connect_as(name) for name in ("ann", "bob", "root"))
    for client, color in ((ann, RED), (bob, GREEN), (root, BLUE)):
        assert client.upload("face.png", color)["name"] == "face.png"
    for client, color in ((ann, RED), (bob, GREEN), (root, BLUE)):
        assert client.color("face.png") == color
        # The same holds where a workflow reads it, and where a mask is put into it.
        assert client.color(
            kind="output", name=client.saved(client.run(loading("face.png")))["filename"]
        ) == (color)
        reference = json.dumps({"filename": "face.png", "type": "input"})
        masked = client.upload("masked.png", (9, 9, 9, 77), "/upload/mask", original_ref=reference)
        assert client.color(masked["name"]) == (*color, 77)
        listed = client.http.get("/calotype/uploads").json()["uploads"]
        assert {"face.png", "masked.png"} == {upload["filename"] for upload in listed}


def test_an_admin_names_whose_file_is_meant(connect_as: Connect) -> None:
    ann, bob, root = (connect_as(name) for name in ("ann", "bob", "root"))
    for client, color in ((ann, RED), (bob, GREEN)):
        client.upload("both.png", color)
    assert root.color("both.png", client="ann") == RED
    assert root.color("both.png", client="bob") == GREEN
    assert root.view("both.png", client="root").status_code == 404
    assert root.view("both.png", client="stranger").status_code == 404
    reference = json.dumps({"filename": "both.png", "type": "input", "client": "bob"})
    masked = root.upload("of-bob.png", (9, 9, 9, 50), "/upload/mask", original_ref=reference)
    assert root.color(masked["name"]) == (*GREEN, 50)
    listed = root.http.get("/calotype/uploads", params={"client": "ann"}).json()["uploads"]
    assert "both.png" in [upload["filename"] for upload in listed]
    # Without a name an admin gets no guess: the two files differ.
    refused = root.view("both.png")
    assert refused.status_code == 400
    (problem,) = refused.json()["error"]["problems"]
    assert problem["field"] == "filename"
    assert "'both.png' names different files of 2 clients: 'ann', 'bob'" in problem["rule"]
    assert "add `client`" in problem["rule"]
    # As soon as they are the same, or one alone is left, there is nothing to confuse.
    bob.http.delete("/calotype/uploads", params={"filename": "both.png"}).raise_for_status()
    assert root.color("both.png") == RED
    gone = root.http.delete("/calotype/uploads", params={"filename": "both.png", "client": "ann"})
    assert gone.status_code == 204
    assert ann.view("both.png").status_code == root.view("both.png").status_code == 404


def test_only_an_admin_may_name_another_client(connect_as: Connect) -> None:
    ann, bob = connect_as("ann"), connect_as("bob")
    ann.upload("private.png", RED)
    assert ann.color("private.png", client="ann") == RED
    assert bob.view("private.png").status_code == 404
    # The answer is the same whether or not the file, or the client, exists.
    for name, owner in (("private.png", "ann"), ("missing.png", "ann"), ("private.png", "stranger")):
        assert bob.view(name, client=owner).status_code == 403
    reference = json.dumps({"filename": "private.png", "type": "input", "client": "ann"})
    refused = bob.http.post(
        "/upload/mask", files={"image": ("m.png", png(RED))}, data={"original_ref": reference}
    )
    assert refused.status_code == 403
    for method in ("GET", "DELETE"):
        query = {"filename": "private.png", "client": "ann"}
        assert bob.http.request(method, "/calotype/uploads", params=query).status_code == 403
    assert ann.color("private.png") == RED
    answer = bob.http.post("/prompt", json={"prompt": loading("private.png")})
    assert (answer.status_code, "private.png" in answer.text) == (400, True)


def test_what_the_history_names_is_what_an_admin_is_shown(connect_as: Connect) -> None:
    ann, bob, root = (connect_as(name) for name in ("ann", "bob", "root"))
    job_id = ann.run(graph(seed=33))
    own = ann.saved(job_id)
    assert "client" not in own
    # Others keep files under the very name that ann's workflow has saved.
    for client, color in ((root, BLUE), (bob, GREEN)):
        client.upload(own["filename"], color, type="output")
        assert client.color(own["filename"], "output") == color
    assert root.saved(job_id) == {**own, "client": "ann"}
    shown = root.http.get("/view", params=root.saved(job_id))
    assert opened(shown.content).getpixel((0, 0)) == (33, 40, 90)
    assert shown.content == ann.http.get("/view", params=own).content
