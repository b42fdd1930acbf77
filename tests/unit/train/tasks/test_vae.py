"""Training an autoencoder: what it learns, what others load of it, and a UNet on its latents."""

from __future__ import annotations

import json
import math
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from PIL import Image

from calotype.cli.main import run
from calotype.core.errors import ModelFileError, RequestError
from calotype.engine.vae import Vae
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.builders import load_training_model, requirements_of
from calotype.train.data.types import Batch
from calotype.train.encode import encode_images
from calotype.train.export import export
from calotype.train.precompute.run import precompute
from calotype.train.train import train
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

NUM_PICTURES = 10
ALL_TERMS = {"vae__gradient_weight": 0.5, "vae__ssim_weight": 0.1, "vae__frequency_weight": 0.1}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_folder(tmp_path_factory.mktemp("data") / "pictures", NUM_PICTURES, ((64, 64),))


def vae_changes(pictures: Path, **changes: Any) -> dict[str, Any]:
    common = {"model__train": "vae", "data__kind": "folder", "data__path": pictures, "trainer__max_steps": 3}
    return {**common, **changes}


@pytest.fixture(scope="module")
def ran(base: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run in bf16, which must not rub off on what is exported."""
    folder = tmp_path_factory.mktemp("ran") / "run"
    changes = vae_changes(pictures, model__precision="bf16", logging__sample_every_steps=2)
    recipe = small_recipe(base, folder, **changes)
    trained(recipe)
    return recipe


@pytest.fixture(scope="module")
def made(ran: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its autoencoder, as exported."""
    folder = tmp_path_factory.mktemp("made") / "vae"
    assert export(ran, folder, dtype="fp32", samples=7) == 3
    return folder


def averaged(recipe: Recipe) -> Any:
    """The autoencoder with the averaged weights of a run, by hand."""
    vae = load_training_model(small_copy(recipe), CPU).vae
    state = saved_state(recipe)
    vae.load_state_dict(dict(zip(sorted(state["parameters"]), state["ema"]["averages"], strict=True)))
    return vae


def small_copy(recipe: Recipe, **model: Any) -> Recipe:
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"precision": "fp32", **model})})


def first_batches(recipe: Recipe, model: Model, count: int) -> list[Batch]:
    from calotype.train.data.dataloader import build_dataloader

    with build_dataloader(recipe.data, requirements_of(model, recipe), micro_batch_size=2) as feed:
        return [batch.to(CPU) for batch in islice(feed, count)]


@pytest.mark.parametrize("terms", [{}, ALL_TERMS])
def test_it_learns_to_restore_a_few_pictures(
    base: Path, pictures: Path, tmp_path: Path, terms: dict[str, Any]
) -> None:
    changes = vae_changes(pictures, optimizer__learning_rate=3e-3, model__use_ema=False, **terms)
    loop = small_loop(small_recipe(base, tmp_path, **changes))
    few = cycle(list(islice(small_feed(loop.recipe, loop), 1)))
    news = [loop.train_step(few) for _ in range(12)]
    assert news[-1].loss < 0.6 * news[0].loss
    assert news[-1].task_metrics["psnr"] > news[0].task_metrics["psnr"] + 2


def test_every_weight_of_the_autoencoder_moves_and_no_other(
    base: Path, pictures: Path, tmp_path: Path
) -> None:
    loop = small_loop(small_recipe(base, tmp_path, **vae_changes(pictures)))
    start = {name: p.detach().clone() for name, p in loop.subject.parameters().items()}
    assert start.keys() == dict(loop.subject.model.vae.state_dict()).keys()
    loop.train_step(small_feed(loop.recipe, loop))
    assert all(not torch.equal(p, start[name]) for name, p in loop.subject.parameters().items())


def test_two_ranks_and_micro_batches_train_what_one_does(base: Path, pictures: Path, tmp_path: Path) -> None:
    changes = vae_changes(
        pictures, model__global_batch_size=4, optimizer__eps=1e-3, optimizer__learning_rate=1e-3, **ALL_TERMS
    )
    alone = small_recipe(base, tmp_path / "alone", **{**changes, "model__micro_batch_size": 4})
    trained(alone)
    halves = small_recipe(base, tmp_path / "halves", **changes)
    trained(halves)
    recipe = tmp_path / "empty.yaml"
    chosen = settings(base, tmp_path / "ranks", **changes, trainer__devices=2)
    run_on_two_ranks([["train", str(recipe), *arguments(chosen), "--device=cpu"]], tmp_path)
    start = small_loop(alone).state()["parameters"]
    wanted, wanted_metrics = saved_state(alone)["parameters"], metrics(tmp_path / "alone")
    assert furthest(start, wanted) > 1e-3
    for name in ("halves", "ranks"):
        # Measured: 1.2e-7.
        assert furthest(state_in(tmp_path / name)["parameters"], wanted) <= 1e-6
        for mine, theirs in zip(metrics(tmp_path / name), wanted_metrics, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-5)
            assert 0 < mine["psnr"] < 100


def test_validation_is_no_part_of_the_psnr(base: Path, pictures: Path, tmp_path: Path) -> None:
    held_out = fill_folder(tmp_path / "held-out", 4, ((64, 32),))
    validated = {
        "validation__data__kind": "folder",
        "validation__data__path": held_out,
        "validation__every_steps": 1,
        "validation__num_samples": 4,
    }
    for name, more in (("plain", {}), ("validated", validated)):
        trained(small_recipe(base, tmp_path / name, **vae_changes(pictures, **more)))
    plain, seen = ([line["psnr"] for line in metrics(tmp_path / name)] for name in ("plain", "validated"))
    assert seen == plain


def test_a_resumed_run_ends_the_same(base: Path, pictures: Path, tmp_path: Path) -> None:
    changes = vae_changes(pictures, model__global_batch_size=4, ema__every_steps=2, **ALL_TERMS)
    one, two = (small_recipe(base, tmp_path / name, **changes) for name in ("one", "two"))
    trained(one)
    assert trained(two, StopAfter(1)).stopped_early
    trained(two)
    assert_same(saved_state(one), saved_state(two))
    assert metrics(tmp_path / "one") == metrics(tmp_path / "two")


@pytest.mark.parametrize("low", [False, True])
def test_half_precision_and_switches_for_memory_train(
    base: Path, pictures: Path, tmp_path: Path, low: bool
) -> None:
    changes = vae_changes(
        pictures,
        model__precision="bf16",
        model__low_precision_weights=low,
        model__gradient_checkpointing=True,
        model__channels_last=True,
    )
    loop = small_loop(small_recipe(base, tmp_path, **changes))
    assert math.isfinite(loop.train_step(small_feed(loop.recipe, loop)).loss)
    wanted = torch.bfloat16 if low else torch.float32
    assert {p.dtype for p in loop.subject.parameters().values()} == {wanted}


def test_another_models_autoencoder_trains_too(sdxl_base: Path, pictures: Path, tmp_path: Path) -> None:
    loop = small_loop(small_recipe(sdxl_base, tmp_path, **vae_changes(pictures)))
    assert math.isfinite(loop.train_step(small_feed(loop.recipe, loop)).loss)


def test_diffusers_restores_with_it_as_the_averaged_weights_do(ran: Recipe, made: Path) -> None:
    theirs = AutoencoderKL.from_pretrained(made, local_files_only=True)
    ours = averaged(ran)
    assert_same(dict(theirs.state_dict()), dict(ours.state_dict()))
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        assert torch.equal(theirs(pixels).sample, ours(pixels).sample)
    live = saved_state(ran)["parameters"]
    assert furthest(dict(theirs.state_dict()), live) > 1e-5


def test_the_scale_is_that_of_draws_over_the_data(ran: Recipe, made: Path) -> None:
    vae = averaged(ran)
    pixels = [batch.pixels for batch in first_batches(ran, load_training_model(ran, CPU), 4)]
    pictures = torch.cat([p for p in pixels if p is not None])[:7]
    with torch.no_grad():
        found = vae.encode(pictures).latent_dist
    mean, deviation = found.mean.double().numpy(), found.std.double().numpy()
    draws = mean + deviation * np.random.default_rng(0).standard_normal((2000, *mean.shape))
    config = json.loads((made / "config.json").read_text())
    assert 1 / config["scaling_factor"] == pytest.approx(
        np.sqrt(mean.var() + (deviation**2).mean()), rel=1e-5
    )
    assert 1 / config["scaling_factor"] == pytest.approx(draws.std(), rel=1e-3)


def test_no_picture_counts_twice_for_the_scale(ran: Recipe, made: Path, tmp_path: Path) -> None:
    scales = []
    for samples in (NUM_PICTURES, NUM_PICTURES + 3):
        export(ran, tmp_path / str(samples), samples=samples)
        scales.append(json.loads((tmp_path / str(samples) / "config.json").read_text())["scaling_factor"])
    assert scales[0] == scales[1]


def test_sheets_show_the_same_pictures_before_and_after(ran: Recipe) -> None:
    sheets = list((Path(ran.checkpoint.folder) / "samples").iterdir())
    assert [sheet.name for sheet in sheets] == ["step-00000002.png"]
    with Image.open(sheets[0]) as sheet:
        assert sheet.width >= 2 * 64
        assert sheet.height >= 2 * 64


def unet_changes(pictures: Path, vae: Path) -> dict[str, Any]:
    return {"data__kind": "folder", "data__path": pictures, "model__vae": vae, "trainer__max_steps": 1}


def test_a_unet_trains_on_its_latents_and_leaves_with_it(
    base: Path, pictures: Path, made: Path, tmp_path: Path
) -> None:
    recipe = small_recipe(base, tmp_path / "run", **unet_changes(pictures, made))
    model = load_training_model(recipe, CPU)
    scale = json.loads((made / "config.json").read_text())["scaling_factor"]
    theirs = AutoencoderKL.from_pretrained(made, local_files_only=True)
    [batch] = first_batches(recipe, model, 1)
    assert batch.pixels is not None
    with torch.no_grad():
        wanted = theirs.encode(batch.pixels).latent_dist.mode() * scale
    nothing = torch.zeros(())
    found = encode_images(model, batch.pixels, nothing)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(Vae(model).encode(batch.pixels, tiled=False), wanted)

    trained(recipe)
    export(recipe, tmp_path / "model", dtype="fp32")
    pipeline = DiffusionPipeline.from_pretrained(tmp_path / "model", local_files_only=True)
    assert pipeline.vae.config.scaling_factor == scale
    assert_same(dict(pipeline.vae.state_dict()), dict(theirs.state_dict()))
    # A whole model folder in place of its autoencoder means the same.
    whole = small_recipe(base, tmp_path / "run", **unet_changes(pictures, tmp_path / "model"))
    assert_same(load_training_model(whole, CPU).vae.state_dict(), model.vae.state_dict())


def test_latents_of_another_autoencoder_or_scale_are_refused(
    base: Path, pictures: Path, made: Path, tmp_path: Path
) -> None:
    plain = {**unet_changes(pictures, made), "model__vae": None}
    own = small_recipe(base, tmp_path / "run", **plain)
    separate = small_recipe(base, tmp_path / "run", **unet_changes(pictures, made))
    config = json.loads((made / "config.json").read_text())
    rescaled = tmp_path / "rescaled"
    rescaled.mkdir()
    for file in made.iterdir():
        (rescaled / file.name).write_bytes(file.read_bytes())
    (rescaled / "config.json").write_text(json.dumps({**config, "scaling_factor": 9.0}))
    other = small_recipe(base, tmp_path / "run", **unet_changes(pictures, rescaled))
    precompute(separate, tmp_path / "latents", device=CPU)
    on_latents = {"kind": "precomputed", "path": str(tmp_path / "latents")}
    for recipe in (own, other):
        with pytest.raises(RequestError, match="vae_hash: was made with") as refused:
            train(recipe.model_copy(update={"data": recipe.data.model_copy(update=on_latents)}), device=CPU)
        assert "text_hash" not in str(refused.value)
    assert (
        trained(separate.model_copy(update={"data": separate.data.model_copy(update=on_latents)})).step == 1
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"latent_channels": 8}, "its latents have 8 channels and 4×4 pixels each, .* uses 4 channels"),
        ({"block_out_channels": None}, "its configuration cannot be used: .*block_out_channels"),
        ({"_class_name": "VQModel"}, "its configuration cannot be used: .*VQModel"),
    ],
)
def test_an_autoencoder_that_does_not_fit_is_refused(
    base: Path, made: Path, tmp_path: Path, change: dict[str, Any], rule: str
) -> None:
    folder = tmp_path / "vae"
    folder.mkdir()
    for file in made.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ModelFileError, match=rule):
        load_training_model(small_recipe(base, tmp_path, model__vae=folder), CPU)


def test_an_autoencoder_is_found_by_name_in_the_model_folder(base: Path, made: Path, tmp_path: Path) -> None:
    (tmp_path / "models" / "vae").mkdir(parents=True)
    made_here = tmp_path / "models" / "vae" / "mine"
    made_here.mkdir()
    for file in made.iterdir():
        (made_here / file.name).write_bytes(file.read_bytes())
    model = load_training_model(
        small_recipe(base, tmp_path, model__vae="mine"), CPU, models=tmp_path / "models"
    )
    theirs = AutoencoderKL.from_pretrained(made, local_files_only=True)
    assert_same(dict(model.vae.state_dict()), dict(theirs.state_dict()))


@pytest.mark.parametrize("kind", ["precomputed", "synthetic_latents"])
def test_data_without_pictures_is_refused(base: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(RequestError, match=rf"data\.kind: model\.train=vae needs pictures, and {kind}"):
        small_recipe(base, tmp_path, model__train="vae", data__kind=kind)
    with pytest.raises(RequestError, match=rf"validation\.data\.kind: model\.train=vae .* and {kind}"):
        small_recipe(base, tmp_path, model__train="vae", data__kind="synthetic", validation__data__kind=kind)


def test_the_checkpoint_of_something_else_is_not_gone_on_with(ran: Recipe) -> None:
    with pytest.raises(RequestError, match=r"was started with model\.train 'vae', now 'unet'"):
        trained(small_copy(ran, train="unet"))


def test_what_cannot_be_made_is_refused(ran: Recipe, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="should be a folder"):
        export(ran, tmp_path / "vae.safetensors")
    with pytest.raises(RequestError, match=r"model\.train: trains the autoencoder"):
        precompute(ran, tmp_path / "latents", device=CPU)


def test_the_commands_train_export_and_measure(
    base: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "empty.yaml"
    recipe.write_text("{}", encoding="utf-8")
    chosen = arguments(settings(base, tmp_path / "run", **vae_changes(pictures, trainer__max_steps=1)))
    assert run(["train", str(recipe), *chosen, "--device=cpu"]) == 0
    made = tmp_path / "vae"
    assert run(["train", "export", str(recipe), str(made), *chosen, "--samples=4", "--device=cpu"]) == 0
    assert "from step 1" in capsys.readouterr().out
    assert AutoencoderKL.from_pretrained(made, local_files_only=True).config.scaling_factor != 1
    words = ["--benchmark", "--benchmark-steps=1", "--warmup-steps=1", "--device=cpu"]
    assert run(["train", str(recipe), *chosen, *words]) == 0
