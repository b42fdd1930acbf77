"""The embedded model in a deployment: ComfyUI's scripts and plain jobs get pictures, bad files no worker."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import calotype
from calotype.core.errors import CalotypeError
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import Endpoint, deployment_dir
from tests.unit.models.files.bad_models import write_bad_models
from tests.unit.serve.workflow.comfy_client import ComfyClient, RefusedError
from tests.unit.serve.workflow.conftest import planned

GRAPH: dict[str, Any] = {
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "cfg": 4,
            "denoise": 1,
            "latent_image": ["5", 0],
            "model": ["4", 0],
            "negative": ["7", 0],
            "positive": ["6", 0],
            "sampler_name": "euler",
            "scheduler": "normal",
            "seed": 8566257,
            "steps": 3,
        },
    },
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "emoji"}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"batch_size": 1, "height": 64, "width": 64}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["4", 1], "text": "a red apple"}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["4", 1], "text": ""}},
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["8", 0]}},
}


@pytest.fixture(scope="module")
def real(surroundings: Path) -> Endpoint:
    told: list[str] = []
    running = deploy(planned("real", models=["emoji"], engine="calotype", preset="baseline"), told.append)
    assert any("emoji" in line for line in told), f"how loading went was not told: {told}"
    return running


@pytest.fixture
def client(real: Endpoint) -> Iterator[ComfyClient]:
    client = ComfyClient(real.http)
    yield client
    client.close()


def seeded(seed: int) -> dict[str, Any]:
    return {**GRAPH, "3": {**GRAPH["3"], "inputs": {**GRAPH["3"]["inputs"], "seed": seed}}}


def pixels(data: bytes) -> bytes:
    return Image.open(io.BytesIO(data)).convert("RGB").tobytes()


def test_bad_model_files_are_refused_and_good_requests_served(real: Endpoint, surroundings: Path) -> None:
    marker = surroundings / "a command was run"
    names = write_bad_models(surroundings / "models" / "checkpoints", marker)
    with calotype.client("real") as client:
        (worker,) = client.status().workers
        for name in names:
            answer = httpx.post(f"{real.http}/v1/loaded-models", json={"model": name}, timeout=60)
            message = answer.json()["error"]["message"]
            assert answer.status_code == (400 if "link" in name else 422), message
            assert name in message
            assert str(surroundings) not in message, "clients are told where files lie"
            with pytest.raises(CalotypeError) as refused:
                client.load(name)
            assert str(refused.value) == message
        with pytest.raises(CalotypeError, match=r"^job \w+: command\.ckpt: .* nothing was run"):
            client.query("a red apple", model="command.ckpt")
        assert not marker.exists()
        assert [model.name for model in client.models()] == ["emoji"]
        assert client.query("a red apple", steps=1, width=64, height=64).images[0].size == (64, 64)
        assert [one.pid for one in client.status().workers] == [worker.pid], "a bad file ended the worker"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            {
                "1": {"class_type": "SolidMask", "inputs": {"value": 0.5, "width": 512, "height": 512}},
                "2": {"class_type": "MaskToImage", "inputs": {"mask": ["1", 0]}},
                "3": {
                    "class_type": "ImageScaleBy",
                    "inputs": {"image": ["2", 0], "upscale_method": "nearest-exact", "scale_by": 8.0},
                },
            },
            "IMAGE: 4096×4096 is 16777216 pixels, the limit here is 4194304; make it smaller",
        ),
        (
            {
                "1": {"class_type": "EmptyLatentImage", "inputs": {"batch_size": 2}},
                "3": {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["1", 0], "amount": 64}},
                "4": GRAPH["4"],
                "5": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
            },
            "LATENT: 128 in one batch, the limit here is 64; make fewer at a time",
        ),
    ],
    ids=["pixels", "pictures"],
)
def test_limits_hold_for_whatever_nodes_make(client: ComfyClient, nodes: dict[str, Any], words: str) -> None:
    save = {"class_type": "SaveImage", "inputs": {"filename_prefix": "x", "images": [list(nodes)[-1], 0]}}
    prompt_id = client.queue_prompt({**nodes, "9": save})["prompt_id"]
    (failed,) = [m["data"] for m in client.until_done(prompt_id) if m["type"] == "execution_error"]
    assert (failed["node_id"], failed["exception_message"]) == ("3", words)
    job = client.get(f"/v1/jobs/{prompt_id}")
    assert (job["failure"]["kind"], job["pictures"]) == ("bad_request", [])
    client.post("/history", {"delete": [prompt_id]})


def saving(prefix: str) -> dict[str, Any]:
    """The graph with another seed, so that no other test finds its nodes cached."""
    sampler = {**GRAPH["3"], "inputs": {**GRAPH["3"]["inputs"], "seed": 1}}
    save = {"class_type": "SaveImage", "inputs": {"filename_prefix": prefix, "images": ["8", 0]}}
    return {**GRAPH, "3": sampler, "9": save}


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("x" * 241, "the limit is 234"),
        ("folder/" + "é" * 118, "is 236 bytes long"),
        ("y" * 228 + "%width%%year%", "numbers are appended to it"),
        ("a/" * 127 + "bc", "the limit is 255"),
        ("../above", "not a usable name"),
        ("/tmp/elsewhere", "absolute path"),
        ("folder/~home", "absolute path"),
        ("folder/c:name", "absolute path"),
        ("%no such time%", "percent signs"),
        ("folder/", "empty parts"),
        ("", "empty"),
    ],
)
def test_a_name_under_which_no_picture_can_be_fetched_is_refused_at_once(
    client: ComfyClient, prefix: str, words: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        client.queue_prompt(saving(prefix))
    (problem,) = json.loads(refused.value.body)["node_errors"]["9"]["errors"]
    assert refused.value.status == 400
    assert problem["details"].startswith("filename_prefix: ")
    assert words in problem["details"]


def test_the_longest_name_is_saved_and_fetched(client: ComfyClient) -> None:
    prefix = "folder/" + "é" * 117
    made = client.queue_prompt(saving(prefix))["prompt_id"]
    client.until_done(made)
    (picture,) = client.images(made)["9"]
    assert Image.open(io.BytesIO(picture)).size == (64, 64)
    # Another test looks at the whole history.
    client.post("/history", {"delete": [made]})


def test_the_default_graph(client: ComfyClient, real: Endpoint) -> None:
    job = client.make_pictures("a pear", wait=False)["id"]
    first = client.queue_prompt(GRAPH)["prompt_id"]
    heard = client.until_done(first)
    assert heard[-2]["type"] == "execution_success", heard[-2]
    executed = [m["data"]["node"] for m in heard if m["type"] == "executing"]
    assert executed[-2:] == ["9", None]
    progress = [m["data"] for m in heard if m["type"] == "progress"]
    assert [(one["value"], one["max"]) for one in progress if one["node"] == "3"][-1] == (3, 3)
    assert client.previews
    (picture,) = client.images(first)["9"]
    assert Image.open(io.BytesIO(picture)).size == (64, 64)
    # The graph inside the picture makes it again; only what depends on the seed runs for another seed.
    inside = json.loads(Image.open(io.BytesIO(picture)).info["prompt"])
    other = client.queue_prompt(seeded(5))["prompt_id"]
    cached = next(m for m in client.until_done(other) if m["type"] == "execution_cached")
    assert sorted(cached["data"]["nodes"]) == ["4", "5", "6", "7"]
    assert pixels(client.images(other)["9"][0]) != pixels(picture)
    # Ordinary jobs have gone on meanwhile.
    assert client.get(f"/v1/jobs/{job}")["state"] in ("running", "done")
    stop(real, at_once=False)
    again = deploy(deployment_dir("real").plan())
    client = ComfyClient(again.http)
    try:
        assert list(client.get("/history")) == [first, other]
        assert client.images(first)["9"] == [picture]
        repeated = client.queue_prompt(inside)["prompt_id"]
        client.until_done(repeated)
        assert pixels(client.images(repeated)["9"][0]) == pixels(picture)
    finally:
        client.close()
