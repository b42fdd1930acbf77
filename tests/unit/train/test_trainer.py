"""Updates: numbers that are not finite, learning, clipping, averages, windows and pictures."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from calotype.core.errors import DoesNotFitError
from calotype.engine.engine import Engine
from calotype.train import builders
from calotype.train import train as run_module
from calotype.train.checkpoint import NoDiskSpaceError
from calotype.train.checkpoint.fs import NewFile
from calotype.train.data.bad_samples import TooManyCorruptError
from calotype.train.data.dataloader import build_dataloader
from calotype.train.data.types import Batch
from calotype.train.trainer import NonFiniteError
from tests.stop_signals import tell_to_stop
from tests.unit.train.data.specimens import fill_folder
from tests.unit.train.runs import (
    assert_same,
    metrics,
    saved_state,
    small_feed,
    small_loop,
    small_recipe,
    trained,
)


def poisoned(batches: Iterator[Batch], *bad: int) -> Iterator[Batch]:
    """The same batches, those numbered `bad` (from 1) with a NaN in one latent."""
    for number, batch in enumerate(batches, start=1):
        if number not in bad:
            yield batch
            continue
        assert batch.latents is not None
        latents = batch.latents.clone()
        latents[0, 0, 0, 0] = math.nan
        yield replace(batch, latents=latents)


def kept(loop: Any) -> dict[str, Any]:
    """A copy of what an update may change."""
    state = loop.state()
    return {
        "parameters": {name: p.clone() for name, p in state["parameters"].items()},
        "moments": [
            {name: value.clone() for name, value in each.items()} for each in loop.optimizer.state.values()
        ],
        "averages": [average.clone() for average in loop.ema.averages],
    }


def test_a_loss_that_is_not_finite_stops_before_the_update(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path)
    loop = small_loop(recipe)
    batches = poisoned(small_feed(recipe, loop), 2)
    loop.train_step(batches)
    before = kept(loop)
    report = (
        r"step 2: loss nan.*, samples synthetic-2, synthetic-3\. The weights are those of step 1\. .*skip"
    )
    with pytest.raises(NonFiniteError, match=report):
        loop.train_step(batches)
    assert_same(kept(loop), before)
    assert (loop.step, loop.samples, loop.skips) == (1, 2, 0)


def test_skipping_leaves_out_so_many_updates_and_then_stops(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, trainer__on_non_finite="skip", trainer__most_skips=2)
    loop = small_loop(recipe)
    batches = poisoned(small_feed(recipe, loop), 2, 3, 5)
    assert not loop.train_step(batches).skipped
    start = kept(loop)
    assert [loop.train_step(batches).skipped for _ in range(2)] == [True, True]
    assert_same(kept(loop), start)
    assert not loop.train_step(batches).skipped
    before = kept(loop)
    with pytest.raises(
        NonFiniteError, match=r"step 5.*2 updates were skipped before, trainer\.most_skips is 2"
    ):
        loop.train_step(batches)
    assert_same(kept(loop), before)


class Poisoned:
    """A feed with a NaN in its batches numbered `bad`."""

    def __init__(self, feed: Any, *bad: int) -> None:
        self._feed, self._batches = feed, poisoned(feed, *bad)
        self.facts, self.report = feed.facts, feed.report

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        self._feed.close()

    def __next__(self) -> Batch:
        return next(self._batches)


def test_a_skipped_update_stands_in_the_metrics_as_json(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "build_dataloader", lambda *a, **k: Poisoned(build_dataloader(*a, **k), 1))
    trained(small_recipe(base, tmp_path / "run", trainer__on_non_finite="skip", trainer__max_steps=2))
    first, second = metrics(tmp_path / "run")
    assert (first["skipped"], first["loss"]) == (True, None)
    assert not second["skipped"]


def test_what_was_learned_before_a_bad_step_is_on_disk_and_goes_on(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, recipe = small_recipe(base, tmp_path / "straight"), small_recipe(base, tmp_path / "run")
    trained(straight)
    with monkeypatch.context() as patched:
        patched.setattr(builders, "build_dataloader", lambda *a, **k: Poisoned(build_dataloader(*a, **k), 3))
        with pytest.raises(NonFiniteError):
            trained(recipe)
    assert saved_state(recipe)["step"] == 2
    # With the cause gone it is as if nothing had been.
    trained(recipe)
    assert_same(saved_state(recipe), saved_state(straight))


def test_a_scale_that_cannot_help_ends_the_run(base: Path, tmp_path: Path) -> None:
    """In fp16 gradients out of range halve the scale; ones that are no numbers at any scale are an error."""
    recipe = small_recipe(base, tmp_path, model__precision="fp16")
    loop = small_loop(recipe)
    loop.scaler.load_state_dict({**loop.scaler.state_dict(), "scale": 2.0})
    before = {name: p.detach().clone() for name, p in loop.subject.parameters().items()}
    next(iter(loop.subject.parameters().values())).register_hook(lambda grad: grad * math.nan)
    feed = small_feed(recipe, loop)
    news = loop.train_step(feed)
    assert (news.skipped, math.isfinite(news.loss), loop.scaler.get_scale()) == (True, True, 1.0)
    assert loop.ema is not None
    assert loop.ema.num_updates == 0
    with pytest.raises(NonFiniteError, match=r"step 2: loss .*, gradient norm nan"):
        loop.train_step(feed)
    assert_same(loop.state()["parameters"], before)


def test_what_was_learned_before_the_data_went_bad_is_on_disk_and_goes_on(base: Path, tmp_path: Path) -> None:
    pictures = fill_folder(tmp_path / "pictures", 10, ((64, 64),))
    (pictures / "p006.png").write_bytes(b"no picture")
    changes = {"data__kind": "folder", "data__path": pictures, "data__shuffle": False}
    straight = small_recipe(base, tmp_path / "straight", **changes)
    trained(straight)
    with pytest.raises(TooManyCorruptError):
        trained(small_recipe(base, tmp_path / "run", **changes, data__most_corrupt=0))
    recipe = small_recipe(base, tmp_path / "run", **changes)
    # The bad one was met while the third step was still under way.
    assert saved_state(recipe)["step"] == 3
    trained(recipe)
    assert_same(saved_state(recipe), saved_state(straight))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "straight")


def test_a_picture_that_cannot_be_written_costs_no_step(base: Path, tmp_path: Path) -> None:
    pictures = {
        "logging__sample_every_steps": 2,
        "logging__sample_prompts": ["a"],
        "logging__sample_steps": 1,
    }
    recipe = small_recipe(base, tmp_path / "run", **pictures)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "samples").write_text("in the way")
    with pytest.raises(OSError, match="samples"):
        trained(recipe)
    assert saved_state(recipe)["step"] == 2


def test_being_told_to_stop_does_not_wait_for_pictures(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    generate = Engine.generate

    def told_meanwhile(self: Engine, prompt: str, **settings: Any) -> Any:
        asked.append(prompt)
        tell_to_stop(signal.SIGTERM)
        return generate(self, prompt, **settings)

    monkeypatch.setattr(Engine, "generate", told_meanwhile)
    prompts = {"logging__sample_prompts": ["a", "b", "c"], "logging__sample_steps": 1}
    recipe = small_recipe(base, tmp_path / "run", **prompts, logging__sample_every_steps=2)
    outcome = trained(recipe)
    assert (outcome.step, outcome.stopped_early, asked) == (2, True, ["a"])
    assert saved_state(recipe)["step"] == 2


def test_a_disk_that_is_too_small_is_told_before_the_first_step(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(base, tmp_path / "run", trainer__max_steps=1)
    trained(recipe)
    least = small_loop(recipe).least_bytes()
    written = sum(file.stat().st_size for file in (tmp_path / "run" / "checkpoints").rglob("*.*"))
    assert 0.8 * written < least < written
    free = shutil.disk_usage(tmp_path)._replace(free=least - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(NoDiskSpaceError, match="too little free space"):
        trained(small_recipe(base, tmp_path / "other"))
    assert not (tmp_path / "other" / "metrics.jsonl").exists()


def test_the_last_step_is_saved_although_the_save_before_it_failed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = NewFile.write

    def full_at_step_2(file: NewFile, data: Any) -> int:
        if "step-00000002" in str(file.name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr(NewFile, "write", full_at_step_2)
    recipe = small_recipe(base, tmp_path / "run", trainer__max_steps=3, checkpoint__every_steps=2)
    assert trained(recipe).step == 3
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-00000003"]


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({}, ["micro_batch_size (now 2)", "gradient_checkpointing", "ema.device=cpu"]),
        (
            {
                "model__micro_batch_size": 1,
                "model__use_ema": False,
                "model__gradient_checkpointing": True,
            },
            ["model.resolution"],
        ),
    ],
)
def test_memory_that_ends_while_loading_says_what_to_lower(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], advice: list[str]
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(run_module, "load_training_model", full)
    with pytest.raises(DoesNotFitError) as refused:
        trained(small_recipe(base, tmp_path / "run", **changes))
    said = str(refused.value).partition("; ")[2].split(", or ")
    assert len(said) == len(advice)
    assert all(part in text for part, text in zip(advice, said, strict=True))


@pytest.mark.parametrize("name", ["flash", "efficient", "math", "cudnn"])
def test_only_the_attention_that_was_asked_for_may_run(base: Path, tmp_path: Path, name: str) -> None:
    recipe = small_recipe(base, tmp_path, model__attention=name)
    flags = torch.backends.cuda
    asked = {
        "flash": flags.flash_sdp_enabled,
        "efficient": flags.mem_efficient_sdp_enabled,
        "math": flags.math_sdp_enabled,
        "cudnn": flags.cudnn_sdp_enabled,
    }
    allowed: list[set[str]] = []

    class SeenError(Exception):
        """Enough is known; the CPU has no kernel for some of them."""

    def look(*_: object) -> None:
        allowed.append({kind for kind, enabled in asked.items() if enabled()})
        raise SeenError

    loop = small_loop(recipe)
    loop.subject.network.register_forward_pre_hook(look)
    with pytest.raises(SeenError):
        loop.train_step(small_feed(recipe, loop))
    assert allowed == [{name}]


def test_the_loss_goes_down_on_a_few_latents(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        base,
        tmp_path,
        optimizer__learning_rate=2e-3,
        objective__caption_dropout=0.0,
        model__use_ema=False,
        trainer__max_steps=30,
    )
    loop = small_loop(recipe)
    few = cycle(list(islice(small_feed(recipe, loop), 1)))
    losses = []
    for _ in range(30):
        # The same places in the run, so the same noise and timesteps: nothing is left but to learn.
        loop.samples = 0
        losses.append(loop.train_step(few).loss)
    assert losses[-1] < 0.5 * losses[0]


def test_gradients_are_clipped_to_the_recipes_norm_and_reported_unclipped(base: Path, tmp_path: Path) -> None:
    norms = []
    for limit in (0.0, 0.01):
        recipe = small_recipe(base, tmp_path, optimizer__gradient_clip=limit)
        loop = small_loop(recipe)
        news = loop.train_step(small_feed(recipe, loop))
        gradients = [p.grad for p in loop.subject.parameters().values() if p.grad is not None]
        norms.append((news.gradient_norm, float(torch.cat([g.double().flatten() for g in gradients]).norm())))
    (free, free_after), (clipped, clipped_after) = norms
    assert free == pytest.approx(free_after, rel=1e-5)
    assert clipped == pytest.approx(free, rel=1e-5)
    assert clipped > 0.01
    assert clipped_after == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("kind", "precision"), [("synthetic", "bf16"), ("synthetic_latents", "fp16")])
def test_weights_in_low_precision_train(base: Path, tmp_path: Path, kind: str, precision: str) -> None:
    recipe = small_recipe(
        base, tmp_path, model__precision=precision, model__low_precision_weights=True, data__kind=kind
    )
    loop = small_loop(recipe)
    before = kept(loop)
    news = loop.train_step(small_feed(recipe, loop))
    assert math.isfinite(news.loss)
    assert {p.dtype for p in loop.subject.parameters().values()} == {
        {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    }
    with pytest.raises(AssertionError):
        assert_same(kept(loop)["parameters"], before["parameters"])


def test_autocast_keeps_the_weights_in_full_precision(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, model__precision="bf16", data__kind="synthetic")
    loop = small_loop(recipe)
    assert math.isfinite(loop.train_step(small_feed(recipe, loop)).loss)
    assert {p.dtype for p in loop.subject.parameters().values()} == {torch.float32}


@pytest.mark.parametrize("switch", ["gradient_checkpointing", "channels_last"])
def test_switches_for_memory_and_speed_change_nothing_but_rounding(
    base: Path, tmp_path: Path, switch: str
) -> None:
    norms = []
    for state in (False, True):
        recipe = small_recipe(base, tmp_path, **{f"model__{switch}": state})
        loop = small_loop(recipe)
        news = loop.train_step(small_feed(recipe, loop))
        norms.append((news.loss, news.gradient_norm))
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_model_with_two_text_encoders_trains(sdxl_base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(sdxl_base, tmp_path, data__kind="synthetic", objective__caption_dropout=0.5)
    loop = small_loop(recipe)
    assert math.isfinite(loop.train_step(small_feed(recipe, loop)).loss)


def test_pictures_and_a_trace_are_written_along_the_way(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        base,
        tmp_path / "run",
        trainer__max_steps=3,
        logging__sample_every_steps=2,
        logging__sample_prompts=["a red apple", "a blue pear"],
        logging__sample_steps=2,
        profile__enabled=True,
        profile__start_step=2,
        profile__end_step=2,
        profile__gen_shape=True,
    )
    plain = small_recipe(base, tmp_path / "plain", trainer__max_steps=3)
    trained(recipe)
    trained(plain)
    sheets = list((tmp_path / "run" / "samples").iterdir())
    assert [sheet.name for sheet in sheets] == ["step-00000002.png"]
    with Image.open(sheets[0]) as sheet:
        assert sheet.width >= 2 * 64
    with gzip.open(tmp_path / "run" / "profile-rank0.json.gz") as trace:
        names = {event.get("name") for event in json.load(trace)["traceEvents"]}
    assert "aten::convolution" in names
    # Looking on changes nothing.
    assert metrics(tmp_path / "run") == metrics(tmp_path / "plain")


@pytest.mark.parametrize("graphs", [False, True])
def test_new_steps_are_told_to_graphs_where_there_are_some(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    """To tell them imports torch's whole compiler."""
    told: list[int] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: told.append(1))
    recipe = small_recipe(base, tmp_path, model__global_batch_size=4)
    loop = small_loop(recipe)
    # Asked for afterwards, because there is no capturing without a GPU.
    loop.recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"cuda_graphs": graphs})})
    loop.train_step(small_feed(recipe, loop))
    assert len(told) == (2 if graphs else 0)
