"""Precomputing: what is kept is what the encoders say, interruptions leave no trace, mixtures are refused."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.core.progress import Silent
from calotype.spec.recipe import Recipe
from calotype.train.builders import build_task, load_training_model, requirements_of
from calotype.train.checkpoint import FolderInUseError, claimed
from calotype.train.data.bad_samples import DataError
from calotype.train.data.dataloader import build_dataloader, build_single_pass
from calotype.train.data.types import Batch
from calotype.train.distributed.process_group import Rank
from calotype.train.encode import encode_captions, encode_images
from calotype.train.precompute import run as module
from calotype.train.precompute.run import precompute
from calotype.train.train import train
from tests.stop_signals import tell_to_stop
from tests.unit.train.commands.conftest import MICRO, NUM_PICTURES, Calotype, Recipes

CPU = torch.device("cpu")


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _on(folder: Path, recipe_of: Recipes, model: str = "plain", **parts: dict[str, Any]) -> Recipe:
    data = {"kind": "precomputed", "path": str(folder), "shuffle": False}
    return recipe_of(model, data=data, **parts)


def _break_after(monkeypatch: pytest.MonkeyPatch, num_batches: int) -> None:
    """The encoders fail once they have done so many batches."""
    encode = module._Encoders.encode
    done: list[Batch] = []

    def failing(self: module._Encoders, batch: Batch) -> Any:
        if len(done) == num_batches:
            raise RuntimeError("pulled the plug")
        done.append(batch)
        return encode(self, batch)

    monkeypatch.setattr(module._Encoders, "encode", failing)


class _StopsAt(Silent):
    """Sends this process a signal once so many samples are done."""

    def __init__(self, number: signal.Signals, num_samples: int) -> None:
        self._number, self._num_samples, self._left = number, num_samples, 0

    def start(self, label: str, total: int) -> None:
        del total
        self._left = self._num_samples if label == "precompute" else 0

    def advance(self, amount: int = 1) -> None:
        self._left -= amount
        if amount and self._left == 0:
            tell_to_stop(self._number)


@pytest.mark.parametrize("name", ["plain", "sdxl"])
def test_training_gets_what_the_encoders_say(name: str, recipe_of: Recipes, tmp_path: Path) -> None:
    pictures = recipe_of(name)
    done = precompute(pictures, tmp_path / "made", dtype="fp32", device=CPU)
    assert (done.num_samples, done.finished, done.report.count) == (NUM_PICTURES, True, 0)

    recipe = _on(tmp_path / "made", recipe_of, name)
    model = load_training_model(recipe, CPU)
    needs = requirements_of(model, recipe)
    with build_single_pass(pictures.data, needs, micro_batch_size=MICRO) as raw:
        first = next(raw).to(CPU)
    with build_dataloader(recipe.data, needs, micro_batch_size=MICRO) as feed:
        batch, facts = next(feed), feed.facts
    assert batch.keys == first.keys
    assert first.pixels is not None
    assert first.sizes is not None
    with torch.no_grad():
        mean = model.vae.encode(first.pixels).latent_dist.mean
    assert torch.equal(batch.latents, mean * model.architecture.vae["scaling_factor"])  # type: ignore[arg-type]
    assert torch.equal(batch.sizes, first.sizes)  # type: ignore[arg-type]
    context, pooled = encode_captions(model, first.captions)
    assert torch.equal(batch.context, context)  # type: ignore[arg-type]
    assert (batch.pooled is None) == (pooled is None) == (name == "plain")
    if pooled is not None:
        assert torch.equal(batch.pooled, pooled)  # type: ignore[arg-type]
    assert facts.empty_text is not None
    assert torch.equal(facts.empty_text.context, encode_captions(model, [""])[0][0])


@pytest.mark.parametrize("name", ["plain", "sdxl"])
def test_training_runs_on_half_precision_results(name: str, recipe_of: Recipes, tmp_path: Path) -> None:
    precompute(recipe_of(name), tmp_path / "made", device=CPU)
    parts: dict[str, dict[str, Any]] = {"objective": {"caption_dropout": 0.5}, "trainer": {"max_steps": 1}}
    outcome = train(_on(tmp_path / "made", recipe_of, name, **parts), device=CPU)
    assert (outcome.step, outcome.unreadable) == (1, ())


def test_dropped_captions_become_the_feeds_empty_text(recipe_of: Recipes, tmp_path: Path) -> None:
    precompute(recipe_of(), tmp_path / "made", dtype="fp32", device=CPU)
    recipe = _on(tmp_path / "made", recipe_of, objective={"caption_dropout": 1.0})
    subject: Any = build_task(load_training_model(recipe, CPU), recipe)
    with build_dataloader(
        recipe.data, requirements_of(subject.model, recipe), micro_batch_size=MICRO
    ) as feed:
        empty, batch = feed.facts.empty_text, next(feed)
    assert empty is not None
    marked = replace(empty, context=empty.context + 1)
    subject.use_empty_text(marked)
    context, _ = subject._text(batch, subject._draws(batch, range(MICRO)))
    assert torch.equal(context, marked.context.expand_as(context))


def test_an_interruption_leaves_no_trace(
    recipe_of: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precompute(recipe_of(), tmp_path / "whole", samples_per_shard=4, device=CPU)
    with monkeypatch.context() as patched:
        _break_after(patched, num_batches=3)
        with pytest.raises(RuntimeError, match="pulled the plug"):
            precompute(recipe_of(), tmp_path / "broken", samples_per_shard=4, device=CPU)
    with pytest.raises(DataError, match="interrupted after 4 samples"):
        train(_on(tmp_path / "broken", recipe_of), device=CPU)
    with monkeypatch.context() as patched:
        # Six samples are left, so three batches; a fourth would be work done twice.
        _break_after(patched, num_batches=3)
        done = precompute(recipe_of(), tmp_path / "broken", samples_per_shard=4, device=CPU)
    assert (done.num_samples, done.finished) == (NUM_PICTURES, True)
    assert _files(tmp_path / "broken") == _files(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(number: signal.Signals, recipe_of: Recipes, tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = precompute(recipe_of(), made, samples_per_shard=4, device=CPU, progress=_StopsAt(number, 6))
    assert (done.num_samples, done.finished) == (4, False)
    assert precompute(recipe_of(), made, samples_per_shard=4, device=CPU).finished


def test_a_finished_folder_is_left_alone(
    recipe_of: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precompute(recipe_of(), tmp_path / "made", device=CPU)
    before = _files(tmp_path / "made")
    _break_after(monkeypatch, num_batches=0)
    assert precompute(recipe_of(), tmp_path / "made", device=CPU).num_samples == NUM_PICTURES
    assert _files(tmp_path / "made") == before


def test_processes_share_the_work(
    recipe_of: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precompute(recipe_of(), tmp_path / "one", dtype="fp32", device=CPU)
    for rank in (1, 0):
        place = nullcontext(Rank(rank, 2, rank, CPU))
        monkeypatch.setattr(module, "init_process_group", lambda *_, place=place: place)
        done = precompute(recipe_of(), tmp_path / "two", dtype="fp32", device=CPU)
        assert (done.part, done.num_parts, done.num_samples) == (rank, 2, NUM_PICTURES // 2)
    needs = requirements_of(load_training_model(recipe_of(), CPU), recipe_of())
    latents = []
    for folder in ("one", "two"):
        with build_single_pass(_on(tmp_path / folder, recipe_of).data, needs, micro_batch_size=MICRO) as feed:
            latents.append(torch.cat([batch.latents for batch in feed if batch.latents is not None]))
    # Other batches meet in one convolution, so the last bits may differ.
    torch.testing.assert_close(latents[0], latents[1], rtol=1e-5, atol=1e-5)
    with pytest.raises(DataError, match="another number of processes"):
        precompute(recipe_of(), tmp_path / "one", device=CPU)


def test_another_model_is_refused(recipe_of: Recipes, tmp_path: Path) -> None:
    precompute(recipe_of(), tmp_path / "made", device=CPU)
    with pytest.raises(RequestError, match="vae_hash: was made with") as refused:
        train(_on(tmp_path / "made", recipe_of, "other"), device=CPU)
    assert "text_hash" in str(refused.value)
    with pytest.raises(DataError, match="use an empty folder"):
        precompute(recipe_of("other"), tmp_path / "made", device=CPU)


def test_going_on_differently_is_refused(recipe_of: Recipes, pictures: Path, tmp_path: Path) -> None:
    precompute(recipe_of(), tmp_path / "made", device=CPU)
    before = _files(tmp_path / "made")
    with pytest.raises(DataError, match=r"dtype 'float16' \(now 'float32'\)"):
        precompute(recipe_of(), tmp_path / "made", dtype="fp32", device=CPU)
    # With buckets the same position is another sample: some would be there twice, others never.
    with pytest.raises(DataError, match=r"buckets False \(now True\), crop 'centre' \(now 'random'\)"):
        precompute(recipe_of(data={"buckets": True, "crop": "random"}), tmp_path / "made", device=CPU)
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    for file in sorted(pictures.iterdir())[2:]:
        (fewer / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="was started with data"):
        precompute(recipe_of(data={"path": str(fewer)}), tmp_path / "made", device=CPU)
    assert _files(tmp_path / "made") == before


def test_a_folder_that_another_process_is_filling_is_refused(recipe_of: Recipes, tmp_path: Path) -> None:
    with claimed(tmp_path / "made"), pytest.raises(FolderInUseError, match="still running"):
        precompute(recipe_of(), tmp_path / "made", device=CPU)
    assert {path.name for path in (tmp_path / "made").iterdir()} == {".lock"}
    assert precompute(recipe_of(), tmp_path / "made", device=CPU).finished


def test_what_cannot_be_precomputed_is_refused(recipe_of: Recipes, tmp_path: Path) -> None:
    refused: tuple[tuple[dict[str, dict[str, Any]], str], ...] = (
        ({"data": {"kind": "synthetic"}}, "synthetic samples"),
        ({"data": {"kind": "precomputed"}}, "precomputed already"),
        ({"model": {"train": "textual_inversion"}}, "model.train"),
    )
    for parts, named in refused:
        with pytest.raises(RequestError, match=named):
            precompute(recipe_of(**parts), tmp_path / "made", device=CPU)
    assert not (tmp_path / "made").exists()


def test_numbers_that_do_not_fit_name_the_sample(
    recipe_of: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "encode_images", lambda *given: encode_images(*given) + 1e6)
    with pytest.raises(DataError, match=r"p00.*float16.*--dtype fp32 or bf16"):
        precompute(recipe_of(), tmp_path / "made", device=CPU)


def test_the_command_reports_corrupt_samples_by_name(
    calotype: Calotype, recipe_file: Path, pictures: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in pictures.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    (damaged / "p03.png").write_bytes(b"no picture")
    arguments = ("train", "precompute", recipe_file, "made", f"data.path={damaged}", "--device", "cpu")
    seen = calotype(*arguments)
    assert (seen.code, seen.err) == (0, "")
    assert f"done: {NUM_PICTURES - 1} samples in made" in seen.out
    assert "1 sample could not be read\np03.png" in seen.out
    told = json.loads(calotype(*arguments, "--json").out)
    assert (told["finished"], told["num_samples"]) == (True, NUM_PICTURES - 1)
    done = calotype("train", recipe_file, "data.kind=precomputed", "data.path=made", "--device", "cpu")
    assert "done at step 2" in done.out
