"""What an engine's key depends on, and what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import NotFoundError, RequestError
from calotype.engine import presets
from calotype.engine.artifacts import cache_key as targets
from calotype.engine.artifacts.cache_key import Device, cache_key_of
from calotype.engine.artifacts.shapes import Shape, parse_shapes
from calotype.models.diffusers_layout import read_architecture
from calotype.models.resolve import resolve_model
from tests.engines import with_unet
from tests.small_models import shrunk, shrunk_folder
from tests.unit.engine.artifacts.stored_artifacts import SMALL, WIDE, target

PLAIN: dict[str, Any] = {
    "preset": "fast",
    "shapes": (SMALL,),
    "dtype": torch.float32,
    "device": torch.device("cpu"),
}


@pytest.mark.parametrize(
    "change",
    [{"preset": "cached"}, {"shapes": (SMALL, WIDE)}, {"shapes": (WIDE,)}, {"dtype": torch.bfloat16}],
    ids=str,
)
def test_the_key_follows_what_is_asked_for(change: dict[str, Any]) -> None:
    architecture = shrunk("emoji")
    assert cache_key_of(architecture, **PLAIN).key != cache_key_of(architecture, **{**PLAIN, **change}).key


def test_the_key_follows_the_architecture() -> None:
    one, other = shrunk("emoji"), with_unet(shrunk("emoji"), layers_per_block=3)
    assert cache_key_of(one, **PLAIN).key != cache_key_of(other, **PLAIN).key


@pytest.mark.parametrize("name", ["calotype", "torch", "triton", "cuda"])
def test_the_key_follows_every_version(name: str) -> None:
    here = target(SMALL)
    other = here.software.model_copy(update={name: "99.9"})
    assert here.model_copy(update={"software": other}).key != here.key


@pytest.mark.parametrize("change", [{"name": "NVIDIA H200"}, {"capability": "9.0"}], ids=str)
def test_the_key_follows_the_device(change: dict[str, str]) -> None:
    here = target(SMALL)
    other = Device(**{**here.device.model_dump(), **change})
    assert here.model_copy(update={"device": other}).key != here.key


def test_the_key_follows_the_passes_behind_a_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    before = target(SMALL).key
    fewer = tuple(one for one in presets.PRESETS["fast"] if one.name != "prompts_once")
    monkeypatch.setitem(presets.PRESETS, "fast", fewer)
    assert target(SMALL).key != before


def test_the_key_follows_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    before = target(SMALL).key
    monkeypatch.setattr(targets, "FORMAT", 99)
    assert target(SMALL).key != before


def test_the_versions_are_those_that_run() -> None:
    assert target(SMALL).software.torch == torch.__version__


def test_weights_order_and_place_do_not_matter(tmp_path: Path) -> None:
    one, other = (shrunk_folder(tmp_path, "emoji", seed) for seed in (0, 1))
    assert resolve_model(str(one)).identity.sha256 != resolve_model(str(other)).identity.sha256
    wanted = {**PLAIN, "shapes": (SMALL, WIDE)}
    turned = {**PLAIN, "shapes": (WIDE, SMALL, WIDE)}
    keys = {
        cache_key_of(read_architecture(one), **wanted).key,
        cache_key_of(read_architecture(other), **turned).key,
        cache_key_of(shrunk("emoji"), **wanted).key,
        cache_key_of(with_unet(shrunk("emoji"), _diffusers_version="0.1"), **wanted).key,
    }
    assert len(keys) == 1


def test_an_engine_serves_what_differs_in_shapes_alone() -> None:
    both = target(SMALL, WIDE)
    assert both.serves(target(SMALL))
    assert both.serves(target())
    assert target(SMALL).serves(both)
    assert not both.serves(target(SMALL, preset="cached"))


def test_shapes_as_they_are_written() -> None:
    assert parse_shapes("512x512x1, 1024x768x4,64x64") == (
        Shape(512, 512, 1),
        Shape(1024, 768, 4),
        Shape(64, 64, 1),
    )


def test_every_wrong_shape_is_named() -> None:
    with pytest.raises(RequestError) as refused:
        parse_shapes("512x512x1,63x64x1,many,64x64x0")
    said = str(refused.value).splitlines()
    assert len(said) == 3
    assert "63x64x1: width: 63 is not a multiple of 8" in said[0]
    assert "'many' is not a shape; write WIDTHxHEIGHTxCOUNT" in said[1]
    assert "64x64x0: count" in said[2]


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'fast'"):
        target(SMALL, preset="fasst")
