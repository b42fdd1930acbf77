"""ComfyUI's interface of a real deployment, asked by a client that knows nothing of Calotype."""

from __future__ import annotations

import io
import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.unit.serve.workflow.comfy_client import PATIENCE_S, ComfyClient, RefusedError
from tests.unit.serve.workflow.conftest import Connect, graph


def refused(client: ComfyClient, prompt: object, **more: Any) -> dict[str, Any]:
    """The body of the 400 that a prompt is answered with."""
    with pytest.raises(RefusedError) as answer:
        client.queue_prompt(prompt, **more)
    assert answer.value.status == 400
    body: dict[str, Any] = json.loads(answer.value.body)
    assert set(body) == {"error", "node_errors"}
    assert set(body["error"]) == {"type", "message", "details", "extra_info"}
    return body


def cached_nodes(heard: list[dict[str, Any]]) -> list[str]:
    return next(message["data"]["nodes"] for message in heard if message["type"] == "execution_cached")


def loaded_soon(client: ComfyClient, models: list[str]) -> None:
    """The worker says so when it has let go what it was told to."""
    end = time.monotonic() + PATIENCE_S
    while (found := [model["name"] for model in client.get("/v1/loaded-models")]) != models:
        assert time.monotonic() < end, found
        time.sleep(0.02)


def test_a_script_queues_listens_and_fetches(connect: Connect) -> None:
    client = connect()
    answer = client.queue_prompt(
        graph(seed=77, width=20, height=10), extra_data={"extra_pnginfo": {"workflow": {"a": 1}}}
    )
    assert answer["node_errors"] == {}
    prompt_id = answer["prompt_id"]
    heard = [message for message in client.until_done(prompt_id) if message["type"] != "status"]
    assert [message["type"] for message in heard] == [
        "execution_start",
        "execution_cached",
        "executing",
        *["progress"] * len([m for m in heard if m["type"] == "progress"]),
        "executing",
        "executed",
        "execution_success",
        "executing",
    ]
    assert {message["data"]["prompt_id"] for message in heard} == {prompt_id}
    steps = [message["data"] for message in heard if message["type"] == "progress"]
    assert steps[-1] == {"value": 3, "max": 3, "prompt_id": prompt_id, "node": "1"}
    assert client.previews
    assert all(kind == 1 and Image.open(io.BytesIO(data)).format == "JPEG" for kind, data in client.previews)
    (picture,) = client.images(prompt_id)["save"]
    opened = Image.open(io.BytesIO(picture))
    assert (opened.size, opened.getpixel((0, 0))) == ((20, 10), (77, 40, 90))
    assert json.loads(opened.info["prompt"]) == graph(seed=77, width=20, height=10)
    assert json.loads(opened.info["workflow"]) == {"a": 1}
    entry = client.get(f"/history/{prompt_id}")[prompt_id]
    assert entry["status"]["status_str"] == "success"
    assert entry["prompt"][1:3] == [prompt_id, graph(seed=77, width=20, height=10)]
    assert entry["prompt"][4] == ["save"]


def test_unchanged_nodes_are_cached_and_outputs_made_again(connect: Connect) -> None:
    client = connect(prefix="/api")
    first = client.queue_prompt(graph(seed=5))["prompt_id"]
    client.until_done(first)
    second = client.queue_prompt(graph(seed=5))["prompt_id"]
    assert cached_nodes(client.until_done(second)) == ["1"]
    assert client.images(first) == client.images(second)
    names = {
        client.get(f"/history/{one}")[one]["outputs"]["save"]["images"][0]["filename"]
        for one in (first, second)
    }
    assert len(names) == 2, "each has a picture of its own, so that deleting one keeps the other"


def test_memory_is_given_back_and_taken_again(connect: Connect) -> None:
    client = connect()
    client.until_done(client.queue_prompt(graph(seed=66))["prompt_id"])
    client.make_pictures("loads it")
    client.post("/free")
    client.post("/free", {"unload_models": True})
    loaded_soon(client, [])
    # What nodes made is still there, and is let go only by the other word.
    second = client.queue_prompt(graph(seed=66))["prompt_id"]
    assert cached_nodes(client.until_done(second)) == ["1"]
    client.post("/free", {"free_memory": True, "unload_models": False})
    third = client.queue_prompt(graph(seed=66))["prompt_id"]
    assert cached_nodes(client.until_done(third)) == []
    client.make_pictures("loads it again")
    loaded_soon(client, ["m"])


def test_two_clients_hear_their_own_workflows_only(connect: Connect) -> None:
    one, two = connect(), connect()
    ids = {
        client: client.queue_prompt(graph(seed=seed))["prompt_id"] for client, seed in ((one, 1), (two, 2))
    }
    for client, own in ids.items():
        heard = client.until_done(own)
        assert {m["data"]["prompt_id"] for m in heard if m["type"] != "status"} == {own}
        assert heard[0]["type"] == "status"
        assert heard[0]["data"]["sid"] == client.client_id


def test_stopped_while_it_runs(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    prompt_id = client.queue_prompt(graph(("SmallHold", {"until": str(tmp_path / "never")})))["prompt_id"]
    client.until("progress", node="2")
    (running,) = client.get("/queue")["queue_running"]
    assert running[1] == prompt_id
    client.post("/interrupt", {"prompt_id": "another"})
    client.post("/interrupt")
    heard = client.until_done(prompt_id)
    assert heard[-2]["type"] == "execution_interrupted"
    entry = client.get(f"/history/{prompt_id}")[prompt_id]
    assert (entry["outputs"], entry["status"]["completed"]) == ({}, False)
    assert client.get("/queue")["queue_running"] == []


def test_taken_back_while_it_waits_and_put_in_front(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    held = client.queue_prompt(graph(("SmallHold", {"until": str(tmp_path / "go")})))["prompt_id"]
    client.until("progress", node="2")
    waiting = [client.queue_prompt(graph(seed=seed))["prompt_id"] for seed in range(3)]
    first = client.queue_prompt(graph(seed=9), front=True)
    assert first["number"] < 0
    before = client.queue_prompt(graph(seed=10), number=0.5)["prompt_id"]
    pending = [entry[1] for entry in client.get("/queue")["queue_pending"]]
    assert pending == [first["prompt_id"], before, *waiting]
    assert client.get("/prompt") == {"exec_info": {"queue_remaining": 6}}
    client.post("/queue", {"delete": [waiting[0], held]})
    client.post("/queue", {"delete": ["nobody"]})
    assert [entry[1] for entry in client.get("/queue")["queue_running"]] == [held]
    (tmp_path / "go").touch()
    for prompt_id in (held, first["prompt_id"], before, *waiting[1:]):
        assert client.until_done(prompt_id)[-2]["type"] == "execution_success"
    assert client.get(f"/history/{waiting[0]}") == {}
    client.post("/queue", {"clear": True})
    assert client.get("/queue") == {"queue_running": [], "queue_pending": []}


def test_a_node_that_fails_is_named(connect: Connect) -> None:
    client = connect()
    prompt_id = client.queue_prompt(graph(("SmallFail", {}), seed=6))["prompt_id"]
    kind, error = ((m["type"], m["data"]) for m in client.until_done(prompt_id)[-2:-1]).__next__()
    assert kind == "execution_error"
    assert (error["node_id"], error["node_type"]) == ("2", "SmallFail")
    assert (error["exception_type"], error["exception_message"]) == (
        "RuntimeError",
        "it fails as it was told to",
    )
    assert error["executed"] == ["1"]
    assert "in fail" in "".join(error["traceback"])
    assert client.get(f"/history/{prompt_id}")[prompt_id]["status"]["status_str"] == "error"
    nonsense = graph()
    nonsense["save"] = {"class_type": "SmallNonsense", "inputs": {"image": ["1", 0]}}
    client.until_done(client.queue_prompt(nonsense)["prompt_id"])
    assert client.until_done(client.queue_prompt(graph())["prompt_id"])[-2]["type"] == "execution_success"


def test_bad_graphs_are_refused_with_every_problem(connect: Connect) -> None:
    client = connect()
    before = client.get("/prompt")
    assert refused(client, {})["error"]["type"] == "invalid_prompt"
    assert refused(client, [1])["error"]["type"] == "invalid_prompt"
    assert refused(client, {"1": graph()["1"]})["error"]["type"] == "prompt_no_outputs"
    unknown = refused(client, {"1": {"class_type": "SmallPant", "inputs": {}}, **graph(seed=-1)})
    assert (
        unknown["error"]["type"] == "prompt_outputs_failed_validation"
        or unknown["error"]["type"] == "invalid_prompt"
    )
    several = refused(client, graph(seed=-1, width=0, steps="many"))
    assert several["error"]["type"] == "prompt_outputs_failed_validation"
    found = {error["type"] for error in several["node_errors"]["1"]["errors"]}
    assert found == {"value_smaller_than_min", "invalid_input_type"}
    assert several["node_errors"]["1"]["dependent_outputs"] == ["save"]
    large = refused(client, graph(width=10_000, height=10_000, steps=9999))
    assert [error["extra_info"]["input_name"] for error in large["node_errors"]["1"]["errors"]] == [
        "width",
        "steps",
    ]
    assert "the limit here is" in large["error"]["details"]
    circle = graph(("SmallFail", {}))
    circle["2"]["inputs"]["image"] = ["2", 0]
    assert refused(client, circle)["node_errors"]["2"]["errors"][0]["type"] == "dependency_cycle"
    missing = {**graph(), "1": {"class_type": "SmallLoad", "inputs": {"image": "no.png"}}}
    assert refused(client, missing)["node_errors"]["1"]["errors"][0]["type"] == "value_not_in_list"
    missing["1"]["inputs"]["image"] = "no.png [output]"
    assert refused(client, missing)["node_errors"]["1"]["errors"][0]["type"] == "value_not_in_list"
    for field, value in (("client_id", 7), ("prompt_id", "../x"), ("number", "first"), ("extra_data", [])):
        assert refused(client, graph(), **{field: value})["error"]["type"] == "invalid_prompt"
    # Half a character, wherever it is: no worker could be told of it, and no list of jobs be answered.
    for halved in (graph(title="\ud800"), {"\ud800": graph()["1"], **graph()}):
        assert "holds half a character at position 0" in refused(client, halved)["error"]["message"]
    carried = refused(client, graph(), extra_data={"extra_pnginfo": {"note": ["ab\udfff"]}})["error"]
    assert carried["message"].startswith(
        "extra_data.extra_pnginfo.note.0: holds half a character at position 2"
    )
    assert client.get("/prompt") == before


@pytest.mark.parametrize("path", ["/prompt", "/queue", "/history", "/interrupt", "/free", "/api/prompt"])
def test_pages_of_other_sites_are_refused_whatever_they_say_they_send(connect: Connect, path: str) -> None:
    client = connect()
    request = urllib.request.Request(f"http://{client.server}{path}", data=b"{}", method="POST")
    for header, value in (
        ("Origin", "http://elsewhere.example"),
        ("Origin", "null"),
        ("Content-type", "text/plain"),
    ):
        other = urllib.request.Request(request.full_url, data=b"{}", headers={header: value})
        with pytest.raises(RefusedError) as refused:
            client.open(other)
        assert refused.value.status == (403 if header == "Origin" else 415)
    deep = b'{"prompt": ' + b"[" * 250_000 + b"]" * 250_000 + b"}"
    with pytest.raises(RefusedError) as refused:
        client.open(urllib.request.Request(request.full_url, data=deep))
    assert refused.value.status == 400
    assert b"nested" in refused.value.body


def test_the_part_that_is_sound_runs(connect: Connect) -> None:
    client = connect()
    both = graph(seed=3)
    both["other"] = {"class_type": "SmallSave", "inputs": {"images": ["gone", 0]}}
    answer = client.queue_prompt(both)
    assert answer["node_errors"]["other"]["errors"][0]["type"] == "bad_linked_input"
    client.until_done(answer["prompt_id"])
    assert list(client.images(answer["prompt_id"])) == ["save"]


def test_the_same_id_is_the_same_workflow(connect: Connect) -> None:
    client = connect()
    chosen = "8f6c9a1e-0000-4000-8000-000000000001"
    assert client.queue_prompt(graph(seed=4), prompt_id=chosen)["prompt_id"] == chosen
    client.until_done(chosen)
    assert client.queue_prompt(graph(seed=4), prompt_id=chosen)["prompt_id"] == chosen
    assert client.get(f"/history/{chosen}")[chosen]["status"]["completed"]
    assert "id of another job" in refused(client, graph(seed=5), prompt_id=chosen)["error"]["message"]


def test_history_is_paged_and_forgotten(connect: Connect) -> None:
    client = connect()
    client.post("/history", {"clear": True})
    ids = [client.queue_prompt(graph(seed=seed))["prompt_id"] for seed in range(4)]
    for prompt_id in ids:
        client.until_done(prompt_id)
    assert list(client.get("/history")) == ids
    assert list(client.get("/history", max_items=2)) == ids[2:]
    assert list(client.get("/history", max_items=2, offset=1)) == ids[1:3]
    client.post("/history", {"delete": [ids[0]]})
    assert list(client.get("/history")) == ids[1:]
    client.post("/history", {"clear": True})
    assert client.get("/history") == {}


def test_many_may_forget_the_same_at_once(connect: Connect) -> None:
    clients = [connect() for _ in range(4)]
    for prompt_id in [clients[0].queue_prompt(graph(seed=seed))["prompt_id"] for seed in range(12)]:
        clients[0].until_done(prompt_id)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda client: client.post("/history", {"clear": True}), clients))
    assert clients[0].get("/history") == {}


def test_whoever_comes_back_hears_where_it_is(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    prompt_id = client.queue_prompt(graph(("SmallHold", {"until": str(tmp_path / "go")})))["prompt_id"]
    client.until("progress", node="2")
    client.close()
    client.connect()
    heard = client.until("progress", node="2")
    assert [message["type"] for message in heard] == [
        "status",
        "execution_start",
        "execution_cached",
        "executing",
        "progress",
    ]
    assert heard[0]["data"]["status"] == {"exec_info": {"queue_remaining": 1}}
    assert heard[3]["data"]["node"] == "2"
    (tmp_path / "go").touch()
    assert client.until_done(prompt_id)[-2]["type"] == "execution_success"
