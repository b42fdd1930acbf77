"""What a run made, as a model that others load; and samples that could not be read, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file
from torch import Tensor

from calotype.cli.main import run
from calotype.core.errors import NotFoundError, RequestError
from calotype.models.resolve import resolve_model
from calotype.spec.recipe import Recipe
from calotype.train.data.bad_samples import TooManyCorruptError
from calotype.train.export import export
from tests.unit.train.data.specimens import fill_folder
from tests.unit.train.runs import arguments, assert_same, saved_state, settings, small_recipe, trained

# In bf16, which must not rub off on what is exported.
CHANGES: dict[str, Any] = {"trainer__max_steps": 2, "model__precision": "bf16", "model__channels_last": True}


@pytest.fixture(scope="module")
def ran(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = small_recipe(base, tmp_path_factory.mktemp("ran") / "run", **CHANGES)
    trained(recipe)
    return recipe


def weights(recipe: Recipe, *, live: bool) -> dict[str, Tensor]:
    state = saved_state(recipe)
    if live:
        return dict(state["parameters"])
    return dict(zip(sorted(state["parameters"]), state["ema"]["averages"], strict=True))


@pytest.mark.parametrize("live", [False, True])
def test_an_exported_folder_is_a_model_diffusers_loads(
    ran: Recipe, base: Path, tmp_path: Path, live: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "made"
    recipe = tmp_path / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    chosen = settings(base, Path(ran.checkpoint.folder), **CHANGES)
    words = ["train", "export", recipe, target, *arguments(chosen), "--dtype=fp32", *["--live"] * live]
    assert run([str(word) for word in words]) == 0
    assert "from step 2" in capsys.readouterr().out
    made = DiffusionPipeline.from_pretrained(target, local_files_only=True)
    assert_same(dict(made.unet.state_dict()), weights(ran, live=live))
    with pytest.raises(AssertionError):
        assert_same(dict(made.unet.state_dict()), weights(ran, live=not live))
    # The parts that were not trained are those of the base, to the bit.
    began = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    for part in ("vae", "text_encoder"):
        assert_same(getattr(made, part).state_dict(), getattr(began, part).state_dict())


def test_a_place_that_cannot_be_written_is_no_bug_of_ours(
    ran: Recipe, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    chosen = arguments(settings(base, Path(ran.checkpoint.folder), **CHANGES))
    assert run(["train", "export", str(recipe), str(recipe / "made.safetensors"), *chosen]) == 2
    said = capsys.readouterr().err
    assert f"error: {recipe}" in said
    assert "; choose another path" in said


def test_an_exported_file_holds_the_same(ran: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "made.safetensors"
    assert export(ran, file, dtype="fp32") == 2
    wanted = weights(ran, live=False)
    with resolve_model(str(file)).weights as found:
        for name, tensor in wanted.items():
            assert torch.equal(found.read("unet", name), tensor), name


@pytest.fixture
def own_and_other(base: Path) -> tuple[str, str]:
    """What the base predicts, and what it does not."""
    with resolve_model(str(base)).weights as found:
        own = found.architecture.prediction_type
    return own, {"epsilon": "v_prediction", "v_prediction": "epsilon"}[own]


@pytest.mark.parametrize("name", ["made", "made.safetensors"])
def test_what_the_recipe_taught_to_predict_is_what_others_read(
    base: Path, tmp_path: Path, own_and_other: tuple[str, str], name: str
) -> None:
    _, taught = own_and_other
    ran = small_recipe(base, tmp_path / "run", trainer__max_steps=1, objective__prediction_type=taught)
    trained(ran)
    export(ran, tmp_path / name)
    with resolve_model(str(tmp_path / name)).weights as found:
        assert found.architecture.prediction_type == taught
    if (tmp_path / name).is_dir():
        made = DiffusionPipeline.from_pretrained(tmp_path / name, local_files_only=True)
        assert made.scheduler.config.prediction_type == taught


def test_what_leaves_the_unet_as_it_is_cannot_teach_it_to_predict(
    base: Path, tmp_path: Path, own_and_other: tuple[str, str]
) -> None:
    own, other = own_and_other
    trained(small_recipe(base, tmp_path / "a", model__train="lora", objective__prediction_type=own))
    with pytest.raises(RequestError, match=f"cannot be learned by a lora run: the model predicts '{own}'"):
        trained(small_recipe(base, tmp_path / "b", model__train="lora", objective__prediction_type=other))


def test_half_precision_is_what_is_written_unless_asked(ran: Recipe, tmp_path: Path) -> None:
    export(ran, tmp_path / "made")
    stored = load_file(tmp_path / "made" / "unet" / "diffusion_pytorch_model.safetensors")
    wanted = {name: tensor.half() for name, tensor in weights(ran, live=False).items()}
    assert_same(stored, {name: wanted[name] for name in stored})


def test_a_run_that_never_was_has_nothing_to_export(base: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint in"):
        export(small_recipe(base, tmp_path / "nowhere"), tmp_path / "made")


def test_samples_that_cannot_be_read_are_named(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pictures = fill_folder(tmp_path / "pictures", 6, ((64, 64),))
    (pictures / "p003.png").write_bytes(b"no picture")
    recipe = tmp_path / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    chosen = settings(base, tmp_path / "run", data__kind="folder", data__path=pictures, trainer__max_steps=3)
    reason = "the image is not a PNG, WebP or JPEG"
    for _ in range(2):
        # The second one has all steps already, and nothing to add.
        assert run(["train", str(recipe), *arguments(chosen), "--device=cpu"]) == 0
    said = capsys.readouterr().out
    report = tmp_path / "run" / "unreadable-rank0.jsonl"
    assert "done at step 3 (6 samples)" in said
    where = report.with_stem("unreadable-rank*")
    assert f"samples that could not be read: 1 (p003.png); the reasons are in {where}" in said
    assert [json.loads(line) for line in report.read_text().splitlines()] == [
        {"name": "p003.png", "reason": reason}
    ]
    assert f"skipped a sample that cannot be read: p003.png: {reason}" in caplog.text


def test_too_many_of_them_leave_their_names_behind(base: Path, tmp_path: Path) -> None:
    pictures = fill_folder(tmp_path / "pictures", 8, ((64, 64),))
    for number in range(7):
        (pictures / f"p{number:03d}.png").write_bytes(b"no picture")
    changes = {"data__kind": "folder", "data__path": pictures, "data__most_corrupt": 6}
    with pytest.raises(TooManyCorruptError, match="and 2 more"):
        trained(small_recipe(base, tmp_path / "run", **changes))
    lines = (tmp_path / "run" / "unreadable-rank0.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["name"] for line in lines) == [f"p{n:03d}.png" for n in range(7)]
