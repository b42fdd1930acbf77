"""A run goes on, and is exported, as what it was begun as; what may change in between takes effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.optim import AdamW

from calotype.core.errors import RequestError
from calotype.spec.recipe import Recipe
from calotype.train import trainer as loop_module
from calotype.train.export import export
from tests.small_models import shallow_folder
from tests.unit.train.runs import saved_state, small_feed, small_loop, small_recipe, trained

LORA = {"model__train": "lora", "lora__rank": 1, "lora__alpha": 8.0, "trainer__max_steps": 1}
UNET = {"trainer__max_steps": 1}


@pytest.fixture(scope="module")
def runs(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a run that trained a LoRA and of one that trained a whole UNet."""
    place = tmp_path_factory.mktemp("runs")
    for name, changes in (("lora", LORA), ("unet", UNET)):
        trained(small_recipe(base, place / name, **changes))
    return {name: place / name for name in ("lora", "unet")}


def refused(recipe: Recipe, destination: Path, rule: str) -> None:
    with pytest.raises(RequestError, match=rule):
        trained(recipe)
    with pytest.raises(RequestError, match=rule):
        export(recipe, destination)
    assert not destination.exists()


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"lora__alpha": None}, r"lora\.alpha 8\.0, now 1\.0; use the settings it was started with"),
        # Torch would have repeated the one row, and updated it with moments of another size.
        ({"lora__rank": 4}, r"lora\.rank 1, now 4"),
        ({"model__train": "unet"}, r"model\.train 'lora', now 'unet'"),
        ({"lora__targets": ["to_q"]}, r"'.*lora_A.*' is only in one of them"),
    ],
)
def test_a_lora_with_other_settings_is_refused(
    runs: dict[str, Path], base: Path, tmp_path: Path, changed: dict[str, Any], rule: str
) -> None:
    chosen = {**LORA, "trainer__max_steps": 2, **changed}
    refused(small_recipe(base, runs["lora"], **chosen), tmp_path / "made.safetensors", rule)


def test_another_model_around_what_was_trained_is_refused(
    runs: dict[str, Path], base: Path, tmp_path: Path
) -> None:
    other = shallow_folder(tmp_path, "emoji", 7)
    refused(
        small_recipe(other, runs["unet"], trainer__max_steps=2), tmp_path / "made", "weights of model.base"
    )
    vae = small_recipe(base, runs["unet"], trainer__max_steps=2, model__vae=other / "vae")
    refused(vae, tmp_path / "made", r"model\.vae None, now")


def test_another_prediction_is_refused(runs: dict[str, Path], base: Path, tmp_path: Path) -> None:
    own = saved_state(small_recipe(base, runs["unet"]))["origin"]["objective.prediction_type"]
    other = {"epsilon": "v_prediction", "v_prediction": "epsilon"}[own]
    recipe = small_recipe(base, runs["unet"], trainer__max_steps=2, objective__prediction_type=other)
    refused(recipe, tmp_path / "made", rf"prediction_type '{own}', now '{other}'")


def test_moments_of_another_optimizer_are_refused_but_not_for_export(
    runs: dict[str, Path], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(base, runs["unet"], trainer__max_steps=2, optimizer__name="adamw8bit")
    # What it would be built with is an extra.
    monkeypatch.setattr(loop_module, "build_optimizer", lambda ordered, _part: AdamW(ordered))
    with pytest.raises(RequestError, match=r"optimizer\.name 'adamw', now 'adamw8bit'"):
        trained(recipe)
    assert export(recipe, tmp_path / "made") == 1


def test_a_word_of_another_length_is_refused(base: Path, tmp_path: Path) -> None:
    word: dict[str, Any] = {"model__train": "textual_inversion", "data__kind": "synthetic"}
    trained(small_recipe(base, tmp_path / "run", **word, trainer__max_steps=1))
    longer = small_recipe(base, tmp_path / "run", **word, textual_inversion__num_vectors=3)
    refused(longer, tmp_path / "made.safetensors", r"has shape \(1, 32\), now \(3, 32\)")


def test_an_optimizer_goes_on_as_the_recipe_reads_now(base: Path, tmp_path: Path) -> None:
    """Moments are the checkpoint's; decay and the kind of kernel are what the recipe says today."""
    before = small_recipe(base, tmp_path / "run", optimizer__fused=False, optimizer__weight_decay=0.01)
    loop = small_loop(before)
    loop.train_step(small_feed(before, loop))
    now = small_recipe(base, tmp_path / "run", optimizer__weight_decay=0.5, optimizer__betas=[0.5, 0.9])
    resumed = small_loop(now)
    resumed.load_state(loop.state())
    [group] = resumed.optimizer.param_groups
    assert (group["weight_decay"], group["betas"], group["fused"]) == (0.5, (0.5, 0.9), True)
    resumed.train_step(small_feed(now, resumed))
    steps = {float(values["step"]) for values in resumed.optimizer.state_dict()["state"].values()}
    assert steps == {2.0}


@pytest.mark.parametrize(("before", "after"), [("bf16", "fp16"), ("fp16", "fp32")])
def test_a_run_goes_on_in_another_precision(base: Path, tmp_path: Path, before: str, after: str) -> None:
    trained(small_recipe(base, tmp_path / "run", model__precision=before, trainer__max_steps=1))
    recipe = small_recipe(base, tmp_path / "run", model__precision=after, trainer__max_steps=2)
    assert trained(recipe).step == 2
    assert bool(saved_state(recipe)["scaler"]) is (after == "fp16")
