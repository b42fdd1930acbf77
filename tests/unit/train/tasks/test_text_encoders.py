"""Whole text encoders trained beside the UNet: they move, ranks agree on them, diffusers reads the result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from PIL import Image

from calotype.core.errors import RequestError
from calotype.engine.load import load
from calotype.spec.recipe import Recipe
from calotype.train.builders import build_task, load_training_model
from calotype.train.encode import encode_captions
from calotype.train.export import export
from calotype.train.precompute.run import precompute
from tests.unit.train.children import run_on_two_ranks
from tests.unit.train.data.specimens import fill_folder
from tests.unit.train.runs import (
    CPU,
    arguments,
    assert_same,
    furthest,
    metrics,
    saved_state,
    settings,
    small_feed,
    small_loop,
    small_recipe,
    state_in,
    trained,
)
from tests.unit.train.test_resume import StopAfter

BOTH: dict[str, Any] = {
    "model__train": "unet_and_text",
    "data__kind": "synthetic",
    "objective__caption_dropout": 0.3,
    "optimizer__learning_rate": 1e-3,
    "model__global_batch_size": 4,
    "trainer__max_steps": 3,
    "validation__data__kind": "synthetic",
    "validation__every_steps": 2,
    "validation__num_samples": 4,
    "logging__sample_every_steps": 2,
    "logging__sample_prompts": ["a red apple"],
    "logging__sample_steps": 1,
}
CAPTIONS = ["a red apple", "", "two blue pears on a table"]


@pytest.fixture(scope="module")
def bases(base: Path, sdxl_base: Path) -> dict[str, Path]:
    return {"emoji": base, "sdxl": sdxl_base}


@pytest.fixture(scope="module")
def ran(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = small_recipe(base, tmp_path_factory.mktemp("ran") / "run", **BOTH)
    trained(recipe)
    return recipe


@pytest.mark.parametrize("name", ["emoji", "sdxl"])
def test_all_of_unet_and_encoders_that_is_read_moves(
    bases: dict[str, Path], tmp_path: Path, name: str
) -> None:
    loop = small_loop(small_recipe(bases[name], tmp_path, **BOTH))
    parameters, model = loop.subject.parameters(), loop.subject.model
    start = {key: p.detach().clone() for key, p in parameters.items()}
    loop.train_step(small_feed(loop.recipe, loop))
    # AdamW moves whatever has a gradient, and a row of the table has one if its token was said.
    assert [key for key, p in parameters.items() if torch.equal(p, start[key])] == []
    total = sum(p.numel() for m in (model.unet, *model.text_encoders) for p in m.parameters())
    still = 0
    if name == "sdxl":
        last = model.text_encoders[0].encoder.layers[-1], model.text_encoders[0].final_layer_norm
        still = sum(p.numel() for module in last for p in module.parameters())
    assert sum(p.numel() for p in parameters.values()) == total - still


def test_what_is_exported_is_a_model_that_diffusers_reads_the_same(
    ran: Recipe, base: Path, tmp_path: Path
) -> None:
    assert export(ran, tmp_path / "made", dtype="fp32") == 3
    state = saved_state(ran)
    averages = dict(zip(sorted(state["parameters"]), state["ema"]["averages"], strict=True))
    made = DiffusionPipeline.from_pretrained(tmp_path / "made", local_files_only=True)
    assert_same(
        {f"text_encoder.{name}": p.detach() for name, p in made.text_encoder.named_parameters()}
        | {name: p.detach() for name, p in made.unet.named_parameters()},
        averages,
    )
    began = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    assert_same(dict(made.vae.state_dict()), dict(began.vae.state_dict()))

    engine = load(str(tmp_path / "made"), device="cpu", precision="fp32", preset="baseline")
    ids = made.tokenizer(CAPTIONS, padding="max_length", return_tensors="pt").input_ids
    with torch.no_grad():
        theirs, before = (p.text_encoder(ids).last_hidden_state for p in (made, began))
    torch.testing.assert_close(encode_captions(engine.model, CAPTIONS)[0], theirs)
    assert float((theirs - before).abs().max()) > 1e-3

    file = tmp_path / "made.safetensors"
    export(ran, file, dtype="fp32")
    again = load(str(file), device="cpu", precision="fp32", preset="baseline")
    torch.testing.assert_close(encode_captions(again.model, CAPTIONS)[0], theirs)


def test_pictures_and_validation_are_made_on_the_way(ran: Recipe) -> None:
    folder = Path(ran.checkpoint.folder)
    with Image.open(folder / "samples" / "step-00000002.png") as sheet:
        assert sheet.width >= 64
    validated = [
        line["step"] for line in metrics(folder) if math.isfinite(line.get("validation_loss", math.nan))
    ]
    assert validated == [2, 3]


def test_the_loss_starts_where_it_does_with_frozen_encoders_and_goes_down(base: Path, tmp_path: Path) -> None:
    """On the same samples with the same noise over and over."""

    def losses_of(**changes: Any) -> tuple[float, float]:
        settled = {**BOTH, "objective__caption_dropout": 0.0, **changes}
        loop = small_loop(small_recipe(base, tmp_path, **settled))
        losses = []
        for _ in range(6):
            loop.samples = 0
            losses.append(loop.train_step(small_feed(loop.recipe, loop)).loss)
        return losses[0], losses[-1]

    first, last = losses_of()
    frozen_first, _ = losses_of(model__train="unet")
    assert first == pytest.approx(frozen_first, rel=1e-5)
    assert last < 0.8 * first


def test_a_resumed_run_ends_the_same(ran: Recipe, base: Path, tmp_path: Path) -> None:
    again = small_recipe(base, tmp_path / "run", **BOTH)
    assert trained(again, StopAfter(1)).stopped_early
    trained(again)
    assert_same(saved_state(again), saved_state(ran))
    assert metrics(tmp_path / "run") == metrics(Path(ran.checkpoint.folder))


@pytest.mark.parametrize("name", ["emoji", "sdxl"])
def test_two_ranks_train_what_one_does(bases: dict[str, Path], tmp_path: Path, name: str) -> None:
    changes = {**BOTH, "optimizer__eps": 1e-3, "logging__sample_every_steps": 0}
    alone = small_recipe(bases[name], tmp_path / "alone", **changes, model__micro_batch_size=4)
    trained(alone)
    ranks = settings(
        bases[name], tmp_path / "ranks", **changes, trainer__devices=2, model__micro_batch_size=1
    )
    run_on_two_ranks([["train", str(tmp_path / "empty.yaml"), *arguments(ranks), "--device=cpu"]], tmp_path)
    state, wanted = state_in(tmp_path / "ranks"), saved_state(alone)
    assert any(key.startswith("text_encoder.") for key in wanted["parameters"])
    assert furthest(state["parameters"], wanted["parameters"]) <= 1e-6
    for mine, theirs in zip(metrics(tmp_path / "ranks"), metrics(tmp_path / "alone"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_half_precision_is_for_the_arithmetic_alone(base: Path, tmp_path: Path) -> None:
    loop = small_loop(small_recipe(base, tmp_path, **BOTH, model__precision="bf16"))
    assert math.isfinite(loop.train_step(small_feed(loop.recipe, loop)).loss)
    assert {p.dtype for p in loop.subject.parameters().values()} == {torch.float32}
    assert next(loop.subject.model.vae.parameters()).dtype == torch.bfloat16
    low = small_recipe(base, tmp_path, **BOTH, model__precision="bf16", model__low_precision_weights=True)
    assert {p.dtype for p in small_loop(low).subject.parameters().values()} == {torch.bfloat16}


def test_dropped_captions_are_what_the_encoder_now_makes_of_nothing(base: Path, tmp_path: Path) -> None:
    """With every caption dropped, only the rows of the marks in the table of words have a gradient."""
    recipe = small_recipe(base, tmp_path, **{**BOTH, "objective__caption_dropout": 1.0})
    subject = build_task(load_training_model(recipe, CPU), recipe)
    loop = small_loop(recipe)
    batch = next(small_feed(recipe, loop)).to(CPU)
    subject.prepare(batch, [0, 1])(subject.network).backward()
    gradient = subject.model.text_encoders[0].get_input_embeddings().weight.grad
    assert gradient.abs().sum(dim=1).nonzero().flatten().tolist() == [512, 513]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"data__kind": "precomputed"}, r"data\.kind: model\.train=unet_and_text needs captions"),
        ({"data__kind": "synthetic_latents"}, r"data\.kind: model\.train=unet_and_text needs captions"),
        ({"trainer__strategy": "fsdp"}, r"model\.train: only a whole UNet is worth splitting; use ddp"),
    ],
)
def test_what_does_not_go_together_is_refused(
    base: Path, tmp_path: Path, changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(RequestError, match=rule):
        small_recipe(base, tmp_path, **{**BOTH, **changes})


def test_text_is_not_made_beforehand(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, **{**BOTH, "data__kind": "folder", "data__path": tmp_path})
    with pytest.raises(RequestError, match="trains the text encoders"):
        precompute(recipe, tmp_path / "made", device=CPU)


def test_a_run_of_the_unet_alone_is_not_gone_on_with(base: Path, tmp_path: Path) -> None:
    alone = {**BOTH, "model__train": "unet", "trainer__max_steps": 1}
    trained(small_recipe(base, tmp_path / "run", **alone))
    with pytest.raises(RequestError, match=r"model\.train 'unet', now 'unet_and_text'"):
        trained(small_recipe(base, tmp_path / "run", **BOTH))


def test_pictures_encoded_once_teach_the_same(base: Path, tmp_path: Path) -> None:
    pictures = fill_folder(tmp_path / "pictures", 5, sizes=((64, 64),))
    data = {"data__kind": "folder", "data__path": pictures, "data__in_memory": True}
    weights = []
    for name, keeps in (("each", False), ("once", True)):
        recipe = small_recipe(base, tmp_path / name, **{**BOTH, **data}, data__keep_latents=keeps)
        trained(recipe)
        weights.append(saved_state(recipe)["parameters"])
    # A picture's neighbours in a batch may change how it is summed.
    for key, weight in weights[0].items():
        torch.testing.assert_close(weights[1][key], weight, rtol=1e-5, atol=1e-6)
