"""Validation and the best checkpoint: comparable numbers that training does not notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.cli.main import run
from calotype.core.errors import NotFoundError, RequestError
from calotype.spec.recipe import Recipe
from calotype.train.builders import requirements_of
from calotype.train.callbacks import best_metric
from calotype.train.callbacks.validation import Validation
from calotype.train.checkpoint import CheckpointManager
from calotype.train.data.dataloader import build_dataloader
from calotype.train.export import export
from calotype.train.tasks.base import UNetTask
from calotype.train.train import run_folder
from tests.unit.train.runs import (
    arguments,
    assert_same,
    metrics,
    saved_state,
    settings,
    small_loop,
    small_recipe,
    trained,
)
from tests.unit.train.test_resume import StopAfter

STEPS = 5
PLAIN: dict[str, Any] = {
    "trainer__max_steps": STEPS,
    "checkpoint__every_steps": 1,
    "checkpoint__keep_last": 100,
    "objective__caption_dropout": 0.5,
}
VALIDATED: dict[str, Any] = {
    **PLAIN,
    "validation__data__kind": "synthetic_latents",
    "validation__data__seed": 9,
    "validation__num_samples": 5,
    "validation__every_steps": 2,
}


def judged(recipe: Recipe) -> dict[int, float | None]:
    """The metric in the manifest of every checkpoint there is."""
    with CheckpointManager(run_folder(recipe) / "checkpoints", 1) as store:
        return {checkpoint.step: checkpoint.metric for checkpoint in store.list()}


@pytest.fixture(scope="module")
def plain(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = small_recipe(base, tmp_path_factory.mktemp("plain") / "run", **PLAIN)
    trained(recipe)
    return recipe


@pytest.fixture(scope="module")
def validated(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = small_recipe(base, tmp_path_factory.mktemp("validated") / "run", **VALIDATED)
    trained(recipe)
    return recipe


def test_training_does_not_notice(plain: Recipe, validated: Recipe) -> None:
    assert_same(saved_state(plain), saved_state(validated))
    without = [
        {name: value for name, value in line.items() if name != "validation_loss"}
        for line in metrics(run_folder(validated))
    ]
    assert without == metrics(run_folder(plain))


def test_every_judged_checkpoint_is_validated_and_the_values_are_kept(validated: Recipe) -> None:
    told = {line["step"]: line["validation_loss"] for line in metrics(run_folder(validated))}
    assert told == judged(validated)
    assert len(set(told.values())) == STEPS


def test_the_validation_loss_is_that_of_the_averaged_weights_on_the_same_samples(validated: Recipe) -> None:
    loop = small_loop(validated)
    subject, part = loop.subject, validated.validation.data
    assert isinstance(subject, UNetTask)
    assert part is not None
    averages = saved_state(validated)["ema"]["averages"]
    with torch.no_grad():
        for name, average in zip(sorted(subject.parameters()), averages, strict=True):
            subject.parameters()[name].copy_(average)
        needs = requirements_of(subject.model, validated)
        with build_dataloader(validated.data, needs, micro_batch_size=2) as training:
            subject.use_empty_text(training.facts.empty_text)
        with build_dataloader(part, needs, micro_batch_size=2) as feed:
            # Five samples are three micro-batches of two.
            losses = [
                float(subject.prepare(next(feed), [-1 - 2 * index, -2 - 2 * index])(subject.network))
                for index in range(3)
            ]
    assert judged(validated)[STEPS] == pytest.approx(sum(losses) / 3, rel=1e-5)


def test_a_resumed_run_judges_the_same(base: Path, tmp_path: Path, plain: Recipe, validated: Recipe) -> None:
    for changes, straight in ((PLAIN, plain), (VALIDATED, validated)):
        recipe = small_recipe(base, tmp_path / str(len(changes)), **changes)
        trained(recipe, StopAfter(2))
        trained(recipe)
        assert judged(recipe) == judged(straight)


def test_validation_every_so_many_steps_alone(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        base,
        tmp_path / "run",
        **{**VALIDATED, "checkpoint__metric": "train_loss", "trainer__log_every_steps": 3},
    )
    trained(recipe)
    lines = metrics(run_folder(recipe))
    assert [(line["step"], "validation_loss" in line) for line in lines] == [
        (2, True),
        (3, False),
        (4, True),
        (5, True),
    ]


def test_without_validation_a_running_mean_of_the_loss_judges(
    plain: Recipe, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = [line["loss"] for line in metrics(run_folder(plain))]
    means = [sum(losses[:step]) / step for step in range(1, STEPS + 1)]
    assert judged(plain) == {step: pytest.approx(mean) for step, mean in enumerate(means, start=1)}

    monkeypatch.setattr(best_metric, "WINDOW", 2)
    recipe = small_recipe(base, tmp_path / "run", **PLAIN)
    trained(recipe)
    forgetting = means[:2]
    for loss in losses[2:]:
        forgetting.append((forgetting[-1] + loss) / 2)
    assert judged(recipe) == {step: pytest.approx(mean) for step, mean in enumerate(forgetting, start=1)}


def test_the_last_and_the_best_stay_and_the_best_is_exported(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {1: 0.5, 2: 0.2, 3: 0.4, 4: 0.3, 5: 0.6}
    monkeypatch.setattr(Validation, "loss", lambda _, loop: losses[loop.step])
    for keep_best, stay in ((0, [5]), (1, [2, 5]), (2, [2, 4, 5])):
        changes = {**VALIDATED, "checkpoint__keep_last": 1, "checkpoint__keep_best": keep_best}
        recipe = small_recipe(base, tmp_path / str(keep_best) / "run", **changes)
        trained(recipe)
        assert judged(recipe) == {step: losses[step] for step in stay}
    manifest = run_folder(recipe) / "checkpoints" / "step-00000002" / "complete.json"
    assert json.loads(manifest.read_text())["metric"] == 0.2

    assert export(recipe, tmp_path / "newest") == STEPS
    words = arguments(settings(base, run_folder(recipe)))
    recipe_file = run_folder(recipe).parent / "empty.yaml"
    assert run(["train", "export", str(recipe_file), str(tmp_path / "best"), *words, "--best"]) == 0
    assert "from step 2" in capsys.readouterr().out


def test_a_loss_in_training_is_not_compared_with_one_in_validation(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = {3: 8.0, 4: 7.0, 5: 9.0}
    monkeypatch.setattr(Validation, "loss", lambda _, loop: losses[loop.step])
    few = {"checkpoint__keep_last": 1, "checkpoint__keep_best": 1}
    before = small_recipe(base, tmp_path / "run", **{**PLAIN, **few, "trainer__max_steps": 2})
    trained(before)
    best_before = min(judged(before), key=lambda step: judged(before)[step] or 0.0)
    after = small_recipe(base, tmp_path / "run", **{**VALIDATED, **few})
    trained(after)
    assert export(after, tmp_path / "best", best=True) == 4
    # Who goes back to judging by the loss in training finds what was best by that.
    assert sorted(judged(after)) == sorted({best_before, 4, 5})


def test_there_is_no_best_where_nothing_was_judged(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path / "run", **{**VALIDATED, "checkpoint__every_steps": 100})
    trained(recipe, StopAfter(1))
    assert judged(recipe) == {1: None}
    with pytest.raises(NotFoundError, match="no checkpoint with a metric"):
        export(recipe, tmp_path / "best", best=True)


def test_samples_that_are_not_there_are_refused_before_the_first_step(base: Path, tmp_path: Path) -> None:
    changes = {**PLAIN, "validation__data__kind": "folder", "validation__data__path": tmp_path / "nowhere"}
    recipe = small_recipe(base, tmp_path / "run", **changes)
    with pytest.raises(NotFoundError, match=r"validation\.data: .*nowhere .*validation\.data=null"):
        trained(recipe)
    assert not judged(recipe)
    with pytest.raises(RequestError, match=r"checkpoint\.metric: validation_loss needs samples"):
        small_recipe(base, tmp_path / "run", checkpoint__metric="validation_loss")


def test_samples_without_a_place_are_refused_by_the_name_of_their_setting(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path / "run", **PLAIN, validation__data__kind="folder")
    with pytest.raises(RequestError) as refused:
        trained(recipe)
    assert str(refused.value) == (
        "validation.data.path: validation.data.kind=folder needs one, "
        "for instance validation.data.path=data/pictures"
    )
