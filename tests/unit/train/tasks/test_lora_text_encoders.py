"""A LoRA of the text encoders too: it moves, ranks agree on it, diffusers and we read the same from it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from calotype.core.errors import RequestError
from calotype.models.lora import LoraMerger, read_adapter
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.builders import load_training_model
from calotype.train.encode import encode_captions
from calotype.train.export import export
from calotype.train.precompute.run import precompute
from tests.small_models import shallow_folder
from tests.unit.train.children import run_on_two_ranks
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

BASES = ["emoji", "sd2-base", "sdxl"]
LORA: dict[str, Any] = {
    "model__train": "lora",
    "data__kind": "synthetic",
    "objective__caption_dropout": 0.3,
    "lora__text_encoder": True,
    "lora__rank": 4,
    # Unlike the rank, so that losing it would show.
    "lora__alpha": 10.0,
    "optimizer__learning_rate": 0.02,
    "trainer__max_steps": 3,
}
CAPTIONS = ["a red apple", "two blue pears on a table"]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: shallow_folder(tmp_path_factory.mktemp("bases"), name) for name in BASES}


@pytest.fixture(scope="module")
def ran(bases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    recipes = {
        name: small_recipe(folder, tmp_path_factory.mktemp("ran") / "run", **LORA)
        for name, folder in bases.items()
    }
    for recipe in recipes.values():
        trained(recipe)
    return recipes


def said(model: Model) -> list[Tensor]:
    """What the text encoders make of some captions."""
    return [tensor for tensor in encode_captions(model, CAPTIONS) if tensor is not None]


def said_by(pipeline: Any, model: Model) -> list[Tensor]:
    """The same from the encoders of a pipeline of diffusers'."""
    encoders = [
        e for e in (pipeline.text_encoder, getattr(pipeline, "text_encoder_2", None)) if e is not None
    ]
    own, model.text_encoders = model.text_encoders, encoders
    try:
        return said(model)
    finally:
        model.text_encoders = own


@pytest.mark.parametrize("name", BASES)
def test_the_updates_of_unet_and_encoders_move_and_nothing_else(
    bases: dict[str, Path], tmp_path: Path, name: str
) -> None:
    recipe = small_recipe(bases[name], tmp_path, **LORA)
    untouched = {
        part: {key: tensor.clone() for key, tensor in module.state_dict().items()}
        for part, module in load_training_model(recipe, CPU).parts().items()
    }
    loop = small_loop(recipe)
    parameters = loop.subject.parameters()
    start = {key: p.detach().clone() for key, p in parameters.items()}
    for _ in range(2):
        loop.train_step(small_feed(recipe, loop))
    parts = {key.partition(".")[0] for key in start if key.startswith("text_encoder")}
    assert parts == ({"text_encoder", "text_encoder_2"} if name == "sdxl" else {"text_encoder"})
    assert [key for key, p in parameters.items() if torch.equal(p, start[key])] == []
    after = {
        part: {
            key.replace(".base_layer", ""): tensor
            for key, tensor in module.state_dict().items()
            if ".lora_" not in key
        }
        for part, module in loop.subject.model.parts().items()
    }
    assert_same(after, untouched)


@pytest.mark.parametrize("dialect", ["diffusers", "kohya"])
@pytest.mark.parametrize("name", BASES)
def test_diffusers_and_we_read_what_was_learned(
    bases: dict[str, Path], ran: dict[str, Recipe], tmp_path: Path, name: str, dialect: str
) -> None:
    recipe, file = ran[name], tmp_path / "learned.safetensors"
    part = recipe.lora.model_copy(update={"dialect": dialect})
    assert export(recipe.model_copy(update={"lora": part}), file, live=True) == 3
    loop = small_loop(recipe)
    loop.load_state(saved_state(recipe))
    learned = said(loop.subject.model)

    model = load_training_model(recipe, CPU)
    plain = said(model)
    assert max(float((a - b).abs().max()) for a, b in zip(learned, plain, strict=True)) > 1e-2
    pipeline = DiffusionPipeline.from_pretrained(bases[name], local_files_only=True)
    assert_same(said_by(pipeline, model), plain)
    pipeline.load_lora_weights(file)
    torch.testing.assert_close(said_by(pipeline, model), learned, atol=1e-5, rtol=1e-4)
    LoraMerger(model.parts()).use([(read_adapter(file, model.architecture), 1.0, 1.0)])
    torch.testing.assert_close(said(model), learned, atol=1e-5, rtol=1e-4)
    # The UNet's part of the file is no less there.
    for unet in (pipeline.unet, model.unet):
        assert_close_unets(unet, loop.subject.model.unet)


def assert_close_unets(one: Any, other: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    noisy = torch.randn(1, 4, 8, 8, generator=generator)
    context = torch.randn(1, 7, other.config.cross_attention_dim, generator=generator)
    added = None
    if other.config.addition_embed_type == "text_time":
        width = other.config.projection_class_embeddings_input_dim - 6 * other.config.addition_time_embed_dim
        added = {"text_embeds": torch.randn(1, width, generator=generator), "time_ids": torch.ones(1, 6)}
    with torch.no_grad():
        answers = [
            unet(noisy, torch.tensor([300]), context, added_cond_kwargs=added).sample for unet in (one, other)
        ]
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-4)


def test_two_ranks_train_what_one_does(bases: dict[str, Path], tmp_path: Path) -> None:
    changes = {
        **LORA,
        "model__global_batch_size": 4,
        "optimizer__eps": 1e-3,
        "optimizer__learning_rate": 1e-3,
    }
    alone = small_recipe(bases["sdxl"], tmp_path / "alone", **changes, model__micro_batch_size=4)
    trained(alone)
    words = arguments(settings(bases["sdxl"], tmp_path / "ranks", **changes, trainer__devices=2))
    run_on_two_ranks([["train", str(tmp_path / "empty.yaml"), *words, "--device=cpu"]], tmp_path)
    assert furthest(state_in(tmp_path / "ranks")["parameters"], saved_state(alone)["parameters"]) <= 1e-6
    for mine, theirs in zip(metrics(tmp_path / "ranks"), metrics(tmp_path / "alone"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_a_resumed_run_ends_the_same(bases: dict[str, Path], ran: dict[str, Recipe], tmp_path: Path) -> None:
    again = small_recipe(bases["sdxl"], tmp_path / "run", **LORA)
    assert trained(again, StopAfter(1)).stopped_early
    trained(again)
    assert_same(saved_state(again), saved_state(ran["sdxl"]))


@pytest.mark.parametrize("low", [False, True])
def test_half_precision_trains_updates_in_full(bases: dict[str, Path], tmp_path: Path, low: bool) -> None:
    changes = {**LORA, "model__precision": "bf16", "model__low_precision_weights": low}
    loop = small_loop(small_recipe(bases["sdxl"], tmp_path, **changes))
    assert math.isfinite(loop.train_step(small_feed(loop.recipe, loop)).loss)
    assert {p.dtype for p in loop.subject.parameters().values()} == {torch.float32}


def test_text_made_beforehand_is_refused(bases: dict[str, Path], tmp_path: Path) -> None:
    for kind in ("precomputed", "synthetic_latents"):
        with pytest.raises(
            RequestError, match=rf"data\.kind: lora\.text_encoder=true needs captions, and {kind}"
        ):
            small_recipe(bases["emoji"], tmp_path, **{**LORA, "data__kind": kind})
    with pytest.raises(RequestError, match="trains the text encoders"):
        precompute(small_recipe(bases["emoji"], tmp_path, **LORA), tmp_path / "made", device=CPU)
