"""A resumed run does what an uninterrupted one would have done, to the bit."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import RequestError
from calotype.spec.recipe import Recipe
from tests.stop_signals import tell_to_stop
from tests.unit.train.runs import (
    assert_same,
    metrics,
    saved_state,
    small_feed,
    small_loop,
    small_recipe,
    trained,
)

STEPS = 5
# Everything that has a state: averages that skip steps, a rate that changes, several micro-batches.
LIVELY = {
    "trainer__max_steps": STEPS,
    "model__global_batch_size": 4,
    "ema__every_steps": 2,
    "optimizer__schedule": "cosine",
    "optimizer__warmup_steps": 2,
    "objective__offset_noise": 0.1,
    "objective__caption_dropout": 0.5,
    "objective__snr_gamma": 5.0,
}


class StopAfter:
    """Asks for the stop the way a scheduler does, after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def after_step(self, news: Any, _loop: Any) -> None:
        if news.step == self._step:
            tell_to_stop(signal.SIGTERM)


@pytest.fixture(scope="module")
def straight(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The recipe of a run that nobody interrupted."""
    recipe = small_recipe(base, tmp_path_factory.mktemp("straight") / "run", **LIVELY)
    outcome = trained(recipe)
    assert (outcome.step, outcome.samples, outcome.stopped_early) == (STEPS, 4 * STEPS, False)
    return recipe


def compare(one: Recipe, other: Recipe) -> None:
    assert_same(saved_state(one), saved_state(other))
    assert metrics(Path(one.checkpoint.folder)) == metrics(Path(other.checkpoint.folder))


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_stopped_by_a_signal_and_started_again_ends_the_same(
    straight: Recipe, base: Path, tmp_path: Path, stop: int
) -> None:
    recipe = small_recipe(base, tmp_path / "run", **LIVELY)
    first = trained(recipe, StopAfter(stop))
    assert (first.step, first.stopped_early) == (stop, True)
    second = trained(recipe)
    assert (second.step, second.stopped_early) == (STEPS, False)
    compare(straight, recipe)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_work_after_the_last_checkpoint_is_done_again_the_same(
    straight: Recipe, base: Path, tmp_path: Path, asynchronous: bool
) -> None:
    class CrashError(Exception):
        pass

    class CrashAfter:
        def after_step(self, news: Any, _loop: Any) -> None:
            if news.step == 3:
                raise CrashError

    changes = {**LIVELY, "checkpoint__every_steps": 2, "checkpoint__asynchronous": asynchronous}
    recipe = small_recipe(base, tmp_path / "run", **changes)
    with pytest.raises(CrashError):
        trained(recipe, CrashAfter())
    assert saved_state(recipe)["step"] == 2
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3]
    trained(recipe)
    compare(straight, recipe)


def test_a_resumed_run_on_pictures_and_captions_ends_the_same(base: Path, tmp_path: Path) -> None:
    changes = {"data__kind": "synthetic", "trainer__max_steps": 3, "objective__caption_dropout": 0.5}
    one = small_recipe(base, tmp_path / "one", **changes)
    two = small_recipe(base, tmp_path / "two", **changes)
    trained(one)
    trained(two, StopAfter(2))
    trained(two)
    compare(one, two)


def test_a_finished_run_is_left_as_it_is(straight: Recipe) -> None:
    manifest = Path(straight.checkpoint.folder) / "checkpoints" / f"step-{STEPS:08d}" / "complete.json"
    before = manifest.read_bytes()
    outcome = trained(straight)
    assert (outcome.step, outcome.stopped_early) == (STEPS, False)
    assert manifest.read_bytes() == before
    assert [line["step"] for line in metrics(Path(straight.checkpoint.folder))] == [1, 2, 3, 4, 5]


def test_other_data_is_refused(straight: Recipe) -> None:
    other = straight.model_copy(update={"data": straight.data.model_copy(update={"seed": 7})})
    with pytest.raises(RequestError, match=r"checkpoint\.resume=false"):
        trained(other)


def test_averages_asked_for_later_begin_at_the_weights_of_the_checkpoint(base: Path, tmp_path: Path) -> None:
    without = small_recipe(base, tmp_path / "run", model__use_ema=False)
    loop = small_loop(without)
    loop.train_step(small_feed(without, loop))
    with_averages = small_loop(small_recipe(base, tmp_path / "run"))
    with_averages.load_state(loop.state())
    assert with_averages.ema is not None
    names = sorted(loop.state()["parameters"])
    assert_same(with_averages.ema.averages, [loop.state()["parameters"][name] for name in names])


def test_a_cut_off_line_of_metrics_is_dropped(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path / "run", trainer__max_steps=2)
    trained(recipe)
    file = tmp_path / "run" / "metrics.jsonl"
    with file.open("a", encoding="utf-8") as end:
        end.write('{"step": 3, "lo')
    longer = small_recipe(base, tmp_path / "run", trainer__max_steps=3)
    trained(longer)
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3]
