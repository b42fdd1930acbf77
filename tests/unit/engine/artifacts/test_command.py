"""`calotype engine build|list|verify|remove`, as a user sees them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import ExitCode
from calotype.engine import presets
from calotype.engine.artifacts import build as building
from calotype.engine.artifacts.cache_key import FORMAT, CacheKey, Device
from calotype.engine.artifacts.lookup import use_artifacts
from calotype.engine.artifacts.store import engines_dir
from calotype.engine.compile.region import CompileRequest
from tests.unit.cli.conftest import Calotype, calotype
from tests.unit.engine.artifacts.stored_artifacts import KERNEL, SMALL, WIDE, keep, leftovers, target

__all__ = ["calotype"]


def kept_software(**changes: str) -> CacheKey:
    here = target(SMALL)
    return here.model_copy(update={"software": here.software.model_copy(update=changes)})


def ok() -> CacheKey:
    return target(SMALL, WIDE)


def stale() -> CacheKey:
    return kept_software(torch="2.0.0", calotype="0.0.1")


def foreign() -> CacheKey:
    passes = presets.pass_names("fast", "cuda")
    return target(SMALL, passes=passes, device=Device(name="NVIDIA H200", capability="9.0"))


def damaged() -> CacheKey:
    return target(WIDE)


@pytest.fixture
def engines(calotype: Calotype) -> dict[str, str]:
    """One of each kind → its key."""
    kinds = {"ok": ok(), "stale": stale(), "foreign": foreign(), "damaged": damaged()}
    for wanted in kinds.values():
        keep(wanted)
    (engines_dir() / damaged().key / KERNEL).write_bytes(b"")
    return {kind: wanted.key for kind, wanted in kinds.items()}


def asked(calotype: Calotype, *arguments: object) -> Any:
    seen = calotype("engine", *arguments, "--json")
    return json.loads(seen.out)


def test_build_on_a_cpu_says_when_nothing_is_compiled(calotype: Calotype, model: Path) -> None:
    arguments = ("engine", "build", model, "--shapes", "64x64", "--device", "cpu", "--preset", "low-memory")
    seen = calotype(*arguments)
    assert seen.code == ExitCode.OK
    assert f"{target(SMALL, preset='low-memory').key}: built, 0 files" in seen.out
    assert re.search(r"nothing is compiled for cpu \w{8} with preset 'low-memory'", seen.out)


def test_build_on_a_cpu_compiles_each_shape_once(
    calotype: Calotype, model: Path, orders: list[CompileRequest]
) -> None:
    arguments = ("engine", "build", model, "--shapes", "64x64x1,128x64x2", "--device", "cpu")
    seen = calotype(*arguments)
    assert seen.code == ExitCode.OK
    assert f"{ok().key}: built, 2 files" in seen.out
    latents, _, prompts, _ = zip(*(order.forms for order in orders), strict=True)
    # With guidance there are two prompts for each picture, and its latent is handed in once.
    assert [form.shape for form in latents if form] == [(1, 4, 16, 16), (2, 4, 16, 32)]
    assert [form.shape[0] for form in prompts if form] == [2, 4]
    regions = use_artifacts(target(SMALL, WIDE)).regions
    assert {path.stem for path in regions.values()} == set(regions) == {order.signature for order in orders}
    again = calotype(*arguments, "--json")
    assert json.loads(again.out)["already"] is True
    assert json.loads(again.out)["key"] == ok().key


def test_another_process_finds_what_one_has_built(calotype: Calotype, model: Path) -> None:
    built = asked(calotype, "build", model, "--shapes", "64x64x1", "--device", "cpu")
    loading = (
        "import logging, sys; logging.basicConfig(level='INFO', stream=sys.stdout); import calotype; "
        f"calotype.load({str(model)!r}, device='cpu', preset='fast')"
    )
    said = subprocess.run(
        [sys.executable, "-c", loading],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    assert f"engine: {built['key']}, built for 64x64x1" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--shapes", "64x63"], ExitCode.BAD_REQUEST, "63 is not a multiple of 8"),
        (["--shapes", "64x64", "--preset", "fasst"], ExitCode.NOT_FOUND, "did you mean 'fast'"),
        (["--shapes", "64x64", "--precision", "fp4"], ExitCode.BAD_REQUEST, "'fp4' is not known"),
        (["--shapes", "64x64", "--device", "tpu"], ExitCode.BAD_REQUEST, "'tpu' is not a device"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_what_cannot_be_built(
    calotype: Calotype, model: Path, arguments: list[str], code: ExitCode, said: str
) -> None:
    seen = calotype("engine", "build", model, *arguments)
    assert (seen.code, said in seen.err) == (code, True), seen.err
    assert asked(calotype, "list") == []
    assert leftovers() == []


def test_a_preset_that_the_machine_cannot_run(
    calotype: Calotype, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "GPU_ONLY", frozenset[str]())
    seen = calotype("engine", "build", model, "--shapes", "64x64", "--device", "cpu")
    assert seen.code == ExitCode.NOT_FOUND
    assert "needs the pass 'own_attention', and its kernel is for GPUs" in seen.err
    assert asked(calotype, "list") == []


def test_ctrl_c_leaves_nothing(calotype: Calotype, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "Engine", interrupted)
    seen = calotype("engine", "build", model, "--shapes", "64x64", "--device", "cpu")
    assert seen.code == ExitCode.CANCELLED
    assert asked(calotype, "list") == []
    assert leftovers() == []


def test_a_cache_that_cannot_be_written_to(
    calotype: Calotype, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "file"))
    seen = calotype("engine", "build", model, "--shapes", "64x64", "--device", "cpu")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "set CALOTYPE_CACHE to another folder" in seen.err


def test_verify_tells_them_apart(calotype: Calotype, engines: dict[str, str]) -> None:
    seen = calotype("engine", "verify")
    lines = dict(line.split(": ", 1) for line in seen.out.splitlines())
    assert seen.code == ExitCode.BAD_MODEL_FILE
    assert lines[engines["ok"]] == "ok"
    assert "built with torch 2.0.0, here is" in lines[engines["stale"]]
    assert "built with calotype 0.0.1, here is" in lines[engines["stale"]]
    assert lines[engines["foreign"]] == (
        "stale (built for NVIDIA H200 (9.0), which this machine does not have)"
    )
    assert lines[engines["damaged"]].startswith(f"damaged ({KERNEL} differs from the built file")


def test_verify_one(calotype: Calotype, engines: dict[str, str]) -> None:
    for kind, state, code in (("ok", "ok", 0), ("stale", "stale", 0), ("damaged", "damaged", 3)):
        seen = calotype("engine", "verify", engines[kind], "--json")
        [found] = json.loads(seen.out)
        assert (found["key"], found["state"], seen.code) == (engines[kind], state, code)
    seen = calotype("engine", "verify", "../engines")
    assert seen.code == ExitCode.NOT_FOUND
    assert "no engine '../engines'" in seen.err


def test_a_preset_that_changed_makes_stale(calotype: Calotype, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(target(SMALL))
    monkeypatch.setitem(presets.PRESETS, "fast", ())
    [found] = asked(calotype, "verify")
    assert (found["state"], found["reason"]) == ("stale", "preset 'fast' has other passes now")
    monkeypatch.delitem(presets.PRESETS, "fast")
    [found] = asked(calotype, "verify")
    assert (found["state"], found["reason"]) == ("stale", "preset 'fast' no longer exists")


def test_another_format_is_stale(calotype: Calotype) -> None:
    keep(target(SMALL))
    description = engines_dir() / target(SMALL).key / "engine.json"
    description.write_text(description.read_text().replace(f'"format": {FORMAT}', '"format": 999'))
    [found] = asked(calotype, "verify")
    assert (found["state"], found["reason"]) == ("stale", f"its format is 999, this version reads {FORMAT}")


def test_list(calotype: Calotype, engines: dict[str, str]) -> None:
    listed = {one["key"]: one for one in asked(calotype, "list")}
    assert {one["state"] for one in listed.values()} == {"ok", "stale", "damaged"}
    description = listed[engines["ok"]]["description"]
    assert description["model"] == "shrunk-emoji"
    assert description["target"]["shapes"] == [vars(SMALL), vars(WIDE)]
    table = calotype("engine", "list").out
    assert all(key in table for key in engines.values())


def test_nothing_to_list(calotype: Calotype) -> None:
    assert "build one with `calotype engine build`" in calotype("engine", "list").out
    assert asked(calotype, "list") == asked(calotype, "verify") == []


@pytest.mark.parametrize(
    ("what", "stays"),
    [("ok", {"stale", "foreign", "damaged"}), ("--stale", {"ok"}), ("--all", set[str]())],
    ids=["key", "stale", "all"],
)
def test_remove(calotype: Calotype, engines: dict[str, str], what: str, stays: set[str]) -> None:
    removed = asked(calotype, "remove", engines.get(what, what))["removed"]
    left = {one["key"] for one in asked(calotype, "list")}
    assert left == {engines[kind] for kind in stays}
    assert set(removed) == set(engines.values()) - left
    assert leftovers() == []


def test_remove_wants_to_know_what(calotype: Calotype, engines: dict[str, str]) -> None:
    for arguments in ((), ("--all", "--stale"), (engines["ok"], "--all")):
        seen = calotype("engine", "remove", *arguments)
        assert seen.code == ExitCode.BAD_REQUEST
        assert "needs one of KEY, --all and --stale" in seen.err
    assert calotype("engine", "remove", "..").code == ExitCode.NOT_FOUND
    assert len(asked(calotype, "list")) == 4
