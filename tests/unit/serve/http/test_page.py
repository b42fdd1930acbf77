"""The page's files, and what the page asks for besides jobs."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from prometheus_client import CollectorRegistry

from calotype.core.hardware import Gpu, GpuSurvey, MigDevice
from calotype.serve.disclosure import names_only
from calotype.serve.http.static_files import StaticFiles
from calotype.serve.system_info.benchmark_records import Records
from calotype.serve.system_info.gpu_memory_collector import GpuMemory
from calotype.serve.system_info.system_info import SystemInfo
from calotype.spec.records.measurement import Measurement, Series
from tests.unit.serve.http.fake_service import StandInKeys
from tests.unit.serve.http.running import Running, running


class OneGpu:
    def survey(self) -> GpuSurvey:
        part = MigDevice(0, "1g.10gb", "MIG-1", 10, 5, 16, 1, 0)
        return GpuSurvey("595.1", "13.2", (Gpu(0, "Card", "GPU-1", 80, 60, 132, "9.0", None, (part,)),))


def measured(point: str, day: int, kind: str = "inference") -> str:
    return Measurement(
        id=point,
        point=point,
        kind=kind,
        model="emoji",
        device="CPU",
        fingerprint={},
        command="calotype bench",
        started_at=datetime(2026, 11, day, tzinfo=UTC),
        status="ok",
        series={"wall": Series.of("s", [1.0, 2.0, 3.0])},
    ).model_dump_json()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    built = root / "page"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<!doctype html><title>Calotype</title>")
    (built / "favicon.svg").write_text("<svg/>")
    (built / "assets" / "main-abc123.js").write_text("export {}")
    (root / "secret.txt").write_text("secret")
    run = root / "records" / "h100" / "one"
    run.mkdir(parents=True)
    lines = [measured("old", 1), "{torn", measured("new", 3), measured("trained", 2, "train")]
    (run / "records.jsonl").write_text("\n".join(lines) + "\n")
    (run / "report.html").write_text("<script>1</script>")
    models = root / "models" / "loras"
    models.mkdir(parents=True)
    (models / "ink.safetensors").write_bytes(b"1234")
    parts = root / "models" / "checkpoints" / "whole"
    (parts / "unet").mkdir(parents=True)
    (parts / "model_index.json").write_bytes(b"{}")
    (parts / "unet" / "model.safetensors").write_bytes(b"12345")
    return root


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Running]:
    about = SystemInfo(
        models=("emoji",),
        models_folder=folder / "models",
        records=Records([folder / "records", folder / "not there"]),
        folder=folder,
        gpus=OneGpu(),
    )
    with running(
        keys=StandInKeys(), admins=("root",), page=StaticFiles(folder / "page"), surroundings=about
    ) as found:
        found.client.headers["X-API-Key"] = "alice-key"
        yield found


def raw(server: Running, path: str) -> tuple[int, bytes]:
    """As it is written, without a client that tidies it up; and without a key."""
    address = urlsplit(server.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_anybody_may_have_the_page_and_its_files(served: Running) -> None:
    for path in ("/", "/studio", "/graph", "/graph/some/where", "/measure", "/system", "/index.html"):
        answer = served.client.get(path, headers={"X-API-Key": "wrong"})
        assert answer.text.startswith("<!doctype html>")
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    script = served.client.get("/assets/main-abc123.js")
    assert (script.text, script.headers["cache-control"]) == (
        "export {}",
        "public, max-age=31536000, immutable",
    )
    assert "javascript" in script.headers["content-type"]
    assert served.client.get("/favicon.svg").headers["content-type"] == "image/svg+xml"
    again = served.client.get("/", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "//secret.txt",
        "/assets//etc/passwd",
        "/assets/nowhere.js",
        "/studiox",
        "/page/index.html",
    ],
)
def test_no_address_leads_elsewhere(served: Running, path: str) -> None:
    status, body = raw(served, path)
    assert status == 401
    assert b"secret" not in body.replace(path.encode(), b"")


def test_without_a_build_it_says_how_to_make_one(tmp_path: Path) -> None:
    with running(page=StaticFiles(tmp_path)) as server:
        answer = server.client.get("/")
        assert "make page" in answer.text
        assert server.client.get("/studio").status_code == 404


def test_records_are_told_latest_first_and_without_raw_numbers(served: Running, folder: Path) -> None:
    told = served.client.get("/calotype/records").json()
    assert [one["point"] for one in told["measurements"]] == ["new", "trained", "old"]
    assert {one["run"] for one in told["measurements"]} == {"h100/one"}
    wall = told["measurements"][0]["series"]["wall"]
    assert (wall["summary"]["median"], "values" in wall) == (2.0, False)
    assert told["runs"][0]["measurements"] == 3
    assert ":2: " in told["faults"][0]
    some = served.client.get("/calotype/records?kind=inference&limit=1&values=true").json()
    assert ([one["point"] for one in some["measurements"]], some["left_out"]) == (["new"], 1)
    assert some["measurements"][0]["series"]["wall"]["values"] == [1.0, 2.0, 3.0]
    with (folder / "records" / "h100" / "one" / "records.jsonl").open("a") as file:
        file.write(measured("newest", 9) + "\n")
    assert served.client.get("/calotype/records").json()["measurements"][0]["point"] == "newest"


def test_reports_are_shown_in_a_sandbox(served: Running) -> None:
    (report,) = served.client.get("/calotype/reports").json()["reports"]
    page = served.client.get(f"/calotype/reports/{report['name']}")
    assert page.text == "<script>1</script>"
    assert page.headers["content-security-policy"].startswith("sandbox")
    for other in ("h100/one/records.jsonl", "..%2fsecret.txt", "nowhere/report.html"):
        assert served.client.get(f"/calotype/reports/{other}").status_code == 404


def test_the_system(served: Running) -> None:
    told = served.client.get("/calotype/system").json()
    assert (told["name"], told["ready"], told["queued"]) == ("stand-in", True, 0)
    assert told["devices"] == [
        {
            "index": 0,
            "name": "Card",
            "uuid": "GPU-1",
            "memory_bytes": 80,
            "free_bytes": 60,
            "sms": 132,
            "capability": "9.0",
            "slices": [{"name": "1g.10gb", "uuid": "MIG-1", "memory_bytes": 10, "free_bytes": 5}],
        }
    ]
    assert told["workers"][0]["models"][0]["name"] == "emoji"
    assert told["host"]["memory_bytes"] > 0
    assert told["packages"]["torch"]
    assert "euler" in told["samplers"]
    assert "baseline" in told["presets"]
    assert set(told["lossy_presets"]) < set(told["presets"])
    assert {disk["purpose"] for disk in told["disks"]} == {"models", "queue"}


def strings(value: Any) -> Iterator[str]:
    """Every text in plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def test_paths_and_process_ids_are_for_admins(served: Running, folder: Path) -> None:
    model = "/calotype/models/loras/ink.safetensors"
    addresses = ("/calotype/system", "/calotype/models", model, "/calotype/records", "/v1/deployment")
    shown, full = (
        {address: served.client.get(address, headers={"X-API-Key": key}).json() for address in addresses}
        for key in ("alice-key", "root-key")
    )
    assert not [text for text in strings(shown) if str(folder) in text or "/home" in text]
    assert [disk["path"] for disk in shown["/calotype/system"]["disks"]] == [None, None]
    assert shown["/calotype/models"]["folder"] == "models"
    assert shown["/calotype/records"]["places"] == ["records", "not there"]
    assert shown["/calotype/records"]["runs"][0]["file"] == "records.jsonl"
    assert shown["/calotype/records"]["faults"][0].startswith("records.jsonl:2: ")
    assert shown[model]["path"] == "ink.safetensors"
    for address in ("/calotype/system", "/v1/deployment"):
        assert [worker["pid"] for worker in shown[address]["workers"]] == [None]
        assert [worker["pid"] for worker in full[address]["workers"]] == [1234]
    assert full["/calotype/system"]["disks"][1]["path"] == str(folder)
    assert full["/calotype/models"]["folder"] == str(folder / "models")
    assert full["/calotype/records"]["places"][0] == str(folder / "records")
    assert full[model]["path"] == str(folder / "models" / "loras" / "ink.safetensors")
    missing = served.client.get("/calotype/models/loras/nowhere.safetensors").json()["error"]["message"]
    assert "nowhere" in missing
    assert str(folder) not in missing


def test_texts_keep_names_and_lose_paths() -> None:
    for text, shown in (
        ("no file /srv/my-models/a.safetensors; add it", "no file a.safetensors; add it"),
        ("'/srv/models/': no such folder", "'models': no such folder"),
        ("/srv/models of ann/a b.safetensors", "a b.safetensors"),
        ('File "/srv/x.py", line 3', 'File "x.py", line 3'),
        ("see https://calotype.example/a/b or ink/a.safetensors, 3/4", None),
    ):
        assert names_only({"problem": [text]}) == {"problem": [shown or text]}


def test_memory_of_gpus_and_slices_is_a_metric() -> None:
    registry = CollectorRegistry()
    registry.register(GpuMemory(OneGpu()))
    told = {
        (sample.name, sample.labels["gpu"]): sample.value
        for one in registry.collect()
        for sample in one.samples
    }
    assert told == {
        ("calotype_gpu_memory_bytes", "GPU-1"): 80,
        ("calotype_gpu_memory_bytes", "MIG-1"): 10,
        ("calotype_gpu_free_memory_bytes", "GPU-1"): 60,
        ("calotype_gpu_free_memory_bytes", "MIG-1"): 5,
    }


def test_model_files_and_what_they_are(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    told = served.client.get("/calotype/models").json()["models"]
    own = {"steps": 4, "cfg": 1.0, "sampler": "euler", "schedule": "trailing"}
    missing: dict[str, Any] = {"in_package": False, "loaded": False, "sampling": None}
    assert told == [
        {
            "folder": "checkpoints",
            "name": "emoji",
            "bytes": 1000,
            "in_package": True,
            "loaded": True,
            "sampling": own,
        },
        {"folder": "checkpoints", "name": "whole", "bytes": 7, **missing},
        {"folder": "loras", "name": "ink.safetensors", "bytes": 4, **missing},
    ]
    loaded = served.client.get("/v1/loaded-models").json()
    assert [one["sampling"] for one in loaded if one["name"] == "emoji"] == [own]
    listed = {one["title"]: one["sha256"] for one in served.client.get("/sdapi/v1/sd-models").json()}
    assert listed["emoji"]
    assert listed["whole"] is None
    seen = served.client.get("/calotype/models/loras/ink.safetensors").json()
    assert (seen["safe"], seen["size_bytes"]) == (False, 4)

    async def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it is remembered")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", never)
    assert served.client.get("/calotype/models/loras/ink.safetensors").json() == seen
    for path in ("loras/nowhere.safetensors", "nowhere/ink.safetensors"):
        assert served.client.get(f"/calotype/models/{path}").status_code == 404
    for path in ("loras/..%2f..%2fsecret.txt", "loras/%2fetc%2fpasswd"):
        assert served.client.get(f"/calotype/models/{path}").status_code == 400


def test_every_change_of_a_job_is_one_stream(served: Running) -> None:
    made = served.client.post("/v1/jobs?wait=true", json={"request": {"prompt": "a", "steps": 1}}).json()
    with served.client.stream("GET", "/v1/events") as stream:
        text = "".join(stream.iter_text())
    events = [block.splitlines() for block in text.split("\n\n") if block]
    kinds = [next(line for line in lines if line.startswith("event:")) for lines in events]
    assert kinds[0] == "event: queue"
    jobs = [json.loads(lines[-1].removeprefix("data: ")) for lines in events[1:]]
    assert made["id"] in [job["id"] for job in jobs]


@pytest.mark.parametrize("kind", ["packed PNG", "WEBP", "JPEG"])
def test_a_picture_of_any_format_tells_what_it_carries(served: Running, kind: str) -> None:
    buffer, texts = io.BytesIO(), {"prompt": '{"cat": [NaN]}', "workflow": '{"seed": 18446744073709551615}'}
    notes: dict[str, Any] = {"format": kind.removeprefix("packed ")}
    if kind == "packed PNG":
        notes["pnginfo"] = PngInfo()
        for key, text in texts.items():
            notes["pnginfo"].add_itxt(key, text, zip=True)
    else:
        notes["exif"] = Image.Exif()
        notes["exif"].update(
            {0x010F + place: f"{key}:{text}" for place, (key, text) in enumerate(texts.items())}
        )
    Image.new("RGB", (8, 8)).save(buffer, **notes)
    answer = served.client.post("/calotype/carried", files={"image": buffer.getvalue()})
    assert answer.json() == texts


def test_a_picture_that_carries_nothing_or_is_none_says_so(served: Running) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    carried = served.client.post("/calotype/carried", files={"image": buffer.getvalue()})
    assert carried.json() == {"prompt": None, "workflow": None}
    for files in ({"image": b"\x89PNG nothing"}, {"other": b"x"}):
        answer = served.client.post("/calotype/carried", files=files)
        assert answer.status_code == 400
        assert answer.json()["error"]["problems"]
