"""Calotype's own nodes, and engines that are kept and let go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import NotFoundError, RequestError
from calotype.workflow.node_api import Result
from calotype.workflow.nodes.model_provider import KeptEngines
from calotype.workflow.nodes.value_types import ModelValue
from tests.engines import small_engine
from tests.workflows import Host, ended


def _inputs(host: Host) -> dict[str, Any]:
    model, clip, vae = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    return {
        "model": model,
        "seed": 5,
        "steps": 2,
        "cfg": 4.0,
        "sampler_name": "euler",
        "scheduler": "normal",
        "positive": host.node("CLIPTextEncode", text="an apple", clip=clip),
        "negative": host.node("CLIPTextEncode", text="dark", clip=clip),
        "latent_image": host.node("EmptyLatentImage", width=64, height=64, batch_size=2),
        "vae": vae,
    }


def test_presets_are_compared_picture_by_picture(host: Host) -> None:
    inputs = _inputs(host)
    work: Any = host.registry["CalotypeComparePresets"].run(host, presets="baseline, low-memory", **inputs)
    result = ended(work)
    assert isinstance(result, Result)
    pictures, sheet = result.outputs
    assert pictures.shape == (4, 64, 64, 3)
    torch.testing.assert_close(pictures[:2], pictures[2:], atol=0.02, rtol=0)
    assert sheet.shape[1] > 128
    assert sheet.shape[2] > 128
    assert [line.split(":")[0] for line in result.ui["text"]] == ["baseline", "low-memory"]
    again = host.node("CalotypeComparePresets", presets="baseline, low-memory", **inputs)
    assert torch.equal(again[1], sheet)


@pytest.mark.parametrize(
    ("presets", "wrong"), [("fats", "'fats' does not exist"), (" , ", "names no preset")]
)
def test_a_preset_that_is_not_there_is_named(host: Host, presets: str, wrong: str) -> None:
    with pytest.raises(RequestError, match=f"presets: {wrong}.*use baseline"):
        host.node("CalotypeComparePresets", presets=presets, **_inputs(host))


@pytest.mark.parametrize(("columns", "wider"), [(0, True), (1, False), (2, True)])
def test_a_sheet_holds_all_pictures(host: Host, columns: int, wider: bool) -> None:
    images = torch.rand(2, 40, 40, 3)
    sheet = host.node("CalotypeContactSheet", images=images, columns=columns, labels="one\ntwo")
    assert (sheet.shape[2] > 80) == wider
    assert (sheet.shape[1] > 110) != wider


def test_engines_are_kept_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded: list[tuple[str, str]] = []
    engine = small_engine("sd15")

    def load(reference: str, *, preset: str, **_: object) -> object:
        loaded.append((reference, preset))
        return engine

    monkeypatch.setattr("calotype.workflow.nodes.model_provider.load", load)
    engines = KeptEngines(preset="fast", most=2)
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"1")
    for reference, preset in ((str(file), None), (str(file), "int8"), (str(file), None)):
        engines(reference, preset)
    assert loaded == [(str(file), "fast"), (str(file), "int8")]
    # A file that was written anew is another one; the one used least recently goes.
    os.utime(file, ns=(1, 1))
    engines(str(file), None)
    assert loaded[2:] == [(str(file), "fast")]
    os.utime(file, ns=(2, 2))
    engines(str(file), "int8")
    assert len(loaded) == 4


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no room"), RuntimeError("CUDA error: out of memory")]
)
def test_engines_make_room_for_one_another(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, room = small_engine("sd15"), {"left": 2}

    def load(reference: str, **_: object) -> object:
        if not room["left"]:
            room["left"] = 1
            raise error
        room["left"] -= 1
        return engine

    monkeypatch.setattr("calotype.workflow.nodes.model_provider.load", load)
    engines = KeptEngines()
    for reference in ("a", "b", "c"):
        assert engines(reference) is engine
    assert [key[0] for key in engines._kept] == ["b", "c"]  # type: ignore[index]
    with pytest.raises(type(error), match=str(error)):
        KeptEngines()("d")


def test_a_lora_that_cannot_be_read_is_not_tried_again_with_the_next(host: Host) -> None:
    model, clip, _ = host.node("CheckpointLoaderSimple", ckpt_name="sd15")
    with pytest.raises(NotFoundError, match="no 'gone'"):
        host.models.for_text(clip.with_lora("gone", 1.0))
    assert host.models.for_unet(ModelValue(model.reference)).preset == "baseline"
