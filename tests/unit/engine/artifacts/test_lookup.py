"""What loading a model does with engines that were built for it, or for something else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.progress import Progress
from calotype.engine.artifacts.build import INDUCTOR, REGIONS
from calotype.engine.artifacts.cache_key import CacheKey, Device
from calotype.engine.artifacts.lookup import use_artifacts
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.artifacts.store import Artifact, engines_dir
from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.models.model import Model
from tests.engines import small_engine
from tests.small_models import shrunk_folder
from tests.unit.engine.artifacts.stored_artifacts import KERNEL, LIST, SMALL, WIDE, built, keep, target

Loaded = list[bytes]


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """What torch.compile was given."""
    given: Loaded = []
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", given.append)
    return given


def in_triton(tmp_path: Path) -> list[str]:
    place = tmp_path / "triton"
    return sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file())


def test_loading_hands_over_what_was_compiled(model: Path, tmp_path: Path, loaded: Loaded) -> None:
    built(model)
    load(str(model), device="cpu", preset="fast")
    assert in_triton(tmp_path) == ["ABC/__grp__kernel.json", "ABC/kernel.cubin"]
    assert loaded == [b"graphs"]
    assert (
        str(tmp_path / "triton" / "ABC" / "kernel.cubin")
        in (tmp_path / "triton" / "ABC" / "__grp__kernel.json").read_text()
    )


def test_other_weights_of_the_same_architecture_are_served(
    model: Path, tmp_path: Path, loaded: Loaded
) -> None:
    built(model)
    load(str(shrunk_folder(tmp_path, "emoji", 1)), device="cpu", preset="fast")
    assert loaded


@pytest.mark.parametrize(
    "other",
    [
        {"preset": "cached"},
        {"passes": tuple(name for name in target().passes if name != "shared_guidance")},
        {"precision": "bf16"},
        {"device": Device(name="NVIDIA H200", capability="9.0")},
        {"software": target().software.model_copy(update={"torch": "2.0.0"})},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_was_built_for_something_else_is_not_used(
    loaded: Loaded, other: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    keep(target(SMALL))
    assert not use_artifacts(target(SMALL).model_copy(update=other)).shapes
    assert loaded == []
    assert not caplog.records


@pytest.mark.parametrize("asked", [(), (WIDE,), (WIDE, Shape(32, 32))], ids=str)
def test_all_that_were_built_one_after_the_other_serve_together(
    asked: tuple[Shape, ...], model: Path, loaded: Loaded
) -> None:
    """Whoever builds another size later keeps the first; a size nobody built for is not in the way."""
    signatures = {SMALL: "a" * 32, WIDE: "b" * 32}

    def compiled_for(_model: Model, wanted: CacheKey, folder: Path, _progress: Progress) -> None:
        (folder / REGIONS).mkdir()
        for shape in wanted.shapes:
            (folder / REGIONS / f"{signatures[shape]}.pt2").write_bytes(b"machine code")
        (folder / INDUCTOR).write_text(str(wanted.shapes))

    small, wide = (built(model, shape, collect=compiled_for).artefact for shape in (SMALL, WIDE))
    found = use_artifacts(target(*asked))
    assert found.shapes == (SMALL, WIDE)
    assert found.regions == {
        signatures[shape]: kept.folder / REGIONS / f"{signatures[shape]}.pt2"
        for shape, kept in ((SMALL, small), (WIDE, wide))
    }
    assert len(loaded) == 2


def damage_kernel(folder: Path) -> None:
    content = bytearray((folder / KERNEL).read_bytes())
    content[10] ^= 1
    (folder / KERNEL).write_bytes(content)


def lose_list(folder: Path) -> None:
    (folder / LIST).unlink()


def cut_kernel(folder: Path) -> None:
    (folder / KERNEL).write_bytes(b"")


def empty_description(folder: Path) -> None:
    (folder / "engine.json").write_bytes(b"")


def lose_description(folder: Path) -> None:
    (folder / "engine.json").unlink()


def lead_outside(folder: Path) -> None:
    text = (folder / "engine.json").read_text()
    (folder / "engine.json").write_text(text.replace(KERNEL, "../../../kernel"))


DAMAGES = [damage_kernel, lose_list, cut_kernel, empty_description, lose_description, lead_outside]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_engine_is_refused_with_a_warning(
    tmp_path: Path, loaded: Loaded, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    keep(target(SMALL))
    damage(engines_dir() / target(SMALL).key)
    assert not use_artifacts(target()).shapes
    assert loaded == []
    assert in_triton(tmp_path) == []
    [said] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"engine {target(SMALL).key} is not used" in said
    assert f"calotype engine remove {target(SMALL).key}" in said


def test_pictures_are_made_without_a_damaged_engine(
    model: Path, loaded: Loaded, caplog: pytest.LogCaptureFixture
) -> None:
    damage_kernel(built(model).artefact.folder)
    engine = load(str(model), device="cpu", preset="fast")
    assert "is not used" in caplog.text
    assert loaded == []
    assert len(engine.generate("a red apple", steps=1).images) == 1


def test_a_cache_that_cannot_be_read_is_not_in_the_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: bytes) -> None:
        raise RuntimeError("written by another torch")

    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", refused)
    keep(target(SMALL))
    assert not use_artifacts(target()).shapes
    assert "written by another torch" in caplog.text


def test_a_store_that_cannot_be_read_is_not_in_the_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CALOTYPE_CACHE", "/" + 300 * "x")
    assert not use_artifacts(target()).shapes
    assert "prepared engines are not used" in caplog.text


def test_another_serves_in_the_place_of_a_damaged_one() -> None:
    for shapes in ((SMALL,), (SMALL, WIDE)):
        keep(target(*shapes))
    damage_kernel(engines_dir() / target(SMALL, WIDE).key)
    assert use_artifacts(target()).shapes == (SMALL,)


def test_a_file_that_was_slipped_in_is_not_used(tmp_path: Path) -> None:
    keep(target(SMALL))
    (engines_dir() / target(SMALL).key / KERNEL).with_name("slipped.so").write_bytes(b"")
    assert use_artifacts(target()).shapes
    assert "ABC/slipped.so" not in in_triton(tmp_path)


def test_an_engine_is_not_changed_by_its_use(tmp_path: Path) -> None:
    """Triton writes beside what it finds."""
    keep(target(SMALL))
    use_artifacts(target())
    (tmp_path / "triton" / "ABC" / "kernel.cubin").write_bytes(b"another")
    assert use_artifacts(target()).shapes == (SMALL,)


def sizes_made(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of latents that are evaluated from here on."""
    evaluated: list[tuple[int, ...]] = []
    network = engine._networks.unet
    evaluate = network.evaluate

    def watched(sample: Any, rows: Any) -> Any:
        evaluated.append(tuple(sample.shape))
        return evaluate(sample, rows)

    monkeypatch.setattr(network, "evaluate", watched)
    return evaluated


@pytest.mark.parametrize(("preset", "times"), [("fast", 2), ("cached", 20)])
def test_warming_up_evaluates_every_shape_until_it_is_recorded(
    preset: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = small_engine(preset=preset)
    evaluated = sizes_made(engine, monkeypatch)
    engine.warm_up((SMALL, WIDE))
    factor = engine.model.architecture.vae_factor
    small, wide = (1, 4, 64 // factor, 64 // factor), (2, 4, 64 // factor, 128 // factor)
    assert evaluated == [small] * times + [wide] * times


@pytest.mark.parametrize(
    ("declared", "expected"), [((), (SMALL, WIDE)), ((SMALL,), (SMALL,))], ids=["all", "declared"]
)
def test_loading_warm(
    model: Path, monkeypatch: pytest.MonkeyPatch, declared: tuple[Shape, ...], expected: tuple[Shape, ...]
) -> None:
    warmed: list[tuple[Shape, ...]] = []
    monkeypatch.setattr(Engine, "warm_up", lambda _engine, shapes, _progress: warmed.append(tuple(shapes)))
    built(model, SMALL, WIDE)
    load(str(model), device="cpu", preset="fast", shapes=declared)
    assert warmed == []
    load(str(model), device="cpu", preset="fast", shapes=declared, warm=True)
    assert warmed == [expected]


def test_loading_warm_without_an_engine(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[tuple[Shape, ...]] = []
    monkeypatch.setattr(Engine, "warm_up", lambda _engine, shapes, _progress: warmed.append(tuple(shapes)))
    load(str(model), device="cpu", preset="fast", shapes=[WIDE], warm=True)
    assert warmed == [(WIDE,)]


def test_an_artefact_is_what_its_folder_says(model: Path) -> None:
    made: Artifact = built(model).artefact
    moved = made.folder.rename(made.folder.with_name("0" * 16))
    assert moved.is_dir()
    assert not use_artifacts(target()).shapes
