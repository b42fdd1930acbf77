"""LoRA and textual inversion: only what is learned moves, and other programs read what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from calotype.core.errors import RequestError
from calotype.engine.engine import Engine
from calotype.models.lora import LoraMerger, read_adapter
from calotype.models.textual_inversion import read_embedding
from calotype.spec.recipe import Recipe
from calotype.train.builders import load_training_model
from calotype.train.encode import encode_captions
from calotype.train.export import export
from calotype.train.tasks.textual_inversion import TextualInversionTask
from tests.unit.train.runs import (
    CPU,
    assert_same,
    saved_state,
    small_feed,
    small_loop,
    small_recipe,
    trained,
)

LORA: dict[str, Any] = {
    "model__train": "lora",
    "lora__rank": 4,
    # Unlike the rank, so that losing it would show.
    "lora__alpha": 10.0,
    "optimizer__learning_rate": 0.02,
    "trainer__max_steps": 3,
}
WORD: dict[str, Any] = {
    "model__train": "textual_inversion",
    "data__kind": "synthetic",
    "textual_inversion__word": "thingy",
    "textual_inversion__num_vectors": 2,
    "optimizer__learning_rate": 0.02,
    "trainer__max_steps": 2,
}


def answer(unet: Any) -> Tensor:
    """What a UNet says to a fixed question."""
    generator = torch.Generator().manual_seed(5)
    config = unet.config
    noisy = torch.randn(1, config["in_channels"], 8, 8, generator=generator)
    context = torch.randn(1, 7, config["cross_attention_dim"], generator=generator)
    with torch.no_grad():
        said: Tensor = unet(noisy, torch.tensor([300]), encoder_hidden_states=context).sample
    return said


def copies(model: Any) -> dict[str, dict[str, Tensor]]:
    return {
        part: {name: tensor.clone() for name, tensor in module.state_dict().items()}
        for part, module in model.parts().items()
    }


@pytest.fixture(scope="module")
def lora(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = small_recipe(base, tmp_path_factory.mktemp("lora") / "run", **LORA)
    trained(recipe)
    return recipe


def test_only_the_updates_of_a_lora_move(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, **LORA)
    untouched = copies(load_training_model(recipe, CPU))
    loop = small_loop(recipe)
    start = {name: p.detach().clone() for name, p in loop.subject.parameters().items()}
    feed = small_feed(recipe, loop)
    for _ in range(2):
        loop.train_step(feed)
    assert all(".lora_" in name for name in start)
    moved = [
        name for name, p in loop.subject.parameters().items() if not torch.equal(p.detach(), start[name])
    ]
    assert sorted(moved) == sorted(start)
    after = copies(loop.subject.model)
    without = {
        name.replace(".base_layer", ""): tensor
        for name, tensor in after["unet"].items()
        if ".lora_" not in name
    }
    assert_same({**after, "unet": without}, untouched)


def test_a_lora_starts_from_the_recipes_seed_and_leaves_the_generator_alone(
    base: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    one = small_loop(small_recipe(base, tmp_path, **LORA)).state()["parameters"]
    assert torch.equal(torch.rand(3), expected)
    again = small_loop(small_recipe(base, tmp_path, **LORA)).state()["parameters"]
    other = small_loop(small_recipe(base, tmp_path, **LORA, trainer__seed=1)).state()["parameters"]
    assert_same(one, again)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dialect", ["diffusers", "kohya"])
def test_a_lora_is_read_by_diffusers_and_by_us(
    lora: Recipe, base: Path, tmp_path: Path, dialect: str
) -> None:
    part = lora.lora.model_copy(update={"dialect": dialect})
    file = tmp_path / "learned.safetensors"
    assert export(lora.model_copy(update={"lora": part}), file, live=True) == 3
    loop = small_loop(lora)
    loop.load_state(saved_state(lora))
    learned = answer(loop.subject.model.unet)
    pipeline = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    plain = answer(pipeline.unet)
    pipeline.load_lora_weights(file)
    torch.testing.assert_close(answer(pipeline.unet), learned, atol=1e-5, rtol=1e-4)
    model = load_training_model(lora, CPU)
    LoraMerger(model.parts()).use([(read_adapter(file, model.architecture), 1.0, 1.0)])
    torch.testing.assert_close(answer(model.unet), learned, atol=1e-5, rtol=1e-4)
    assert float((learned - plain).abs().max()) > 1e-3


def test_what_cannot_be_made_is_refused(lora: Recipe, base: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"should end in \.safetensors"):
        export(lora, tmp_path / "folder")
    unfit = small_recipe(base, tmp_path, model__weights="random")
    with pytest.raises(RequestError, match=r"model\.weights: random needs a catalog name.*pretrained"):
        load_training_model(unfit, CPU)


@pytest.mark.parametrize("name", ["base", "sdxl_base"])
def test_only_the_vectors_of_a_word_move_and_others_read_them(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    folder = request.getfixturevalue(name)
    recipe = small_recipe(folder, tmp_path / "run", **WORD)
    untouched = copies(load_training_model(recipe, CPU))
    loop = small_loop(recipe)
    start = {name: p.detach().clone() for name, p in loop.subject.parameters().items()}
    loop.train_step(small_feed(recipe, loop))
    assert len(start) == (1 if name == "base" else 2)
    assert all(not torch.equal(p.detach(), start[name]) for name, p in loop.subject.parameters().items())
    model = loop.subject.model
    after = {
        part: {name: tensor for name, tensor in state.items() if not name.endswith(".vectors")}
        for part, state in copies(model).items()
    }
    assert_same(after, untouched)

    learned = {name: p.detach() for name, p in loop.subject.parameters().items()}
    file = tmp_path / "thingy.safetensors"
    loop.subject.export(file, learned)  # type: ignore[attr-defined]  # not every subject's way
    assert_same(read_embedding(file, model.architecture), [learned[key] for key in sorted(learned)])


def test_a_word_is_exported_for_diffusers(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path / "run", **WORD)
    trained(recipe)
    file = tmp_path / "thingy.safetensors"
    assert export(recipe, file, live=True) == 2
    pipeline = DiffusionPipeline.from_pretrained(base, local_files_only=True)
    pipeline.load_textual_inversion(file, token="thingy")
    table = pipeline.text_encoder.get_input_embeddings().weight.detach()
    assert torch.equal(table[-2:], saved_state(recipe)["parameters"]["0.vectors"])


def test_the_word_stands_where_captions_name_it(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, **WORD)
    subject = small_loop(recipe).subject
    assert isinstance(subject, TextualInversionTask)
    assert subject._with_word("a thingy on a hill") == "a thingy_0 thingy_1 on a hill"
    assert subject._with_word("many thingys") == "a photo of thingy_0 thingy_1"
    # Each spelling is one token, and a new one.
    ids = subject.model.tokenizers[0]("thingy_0 thingy_1", add_special_tokens=False).input_ids
    assert len(ids) == 2
    assert min(ids) >= subject.model.architecture.text_encoders[0]["vocab_size"]


def test_sample_pictures_show_the_word_that_is_learned(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    generate = Engine.generate

    def listening(self: Engine, prompt: str, **settings: Any) -> Any:
        asked.append(prompt)
        return generate(self, prompt, **settings)

    monkeypatch.setattr(Engine, "generate", listening)
    pictures = {"logging__sample_every_steps": 2, "logging__sample_steps": 1}
    prompts = ["a thingy", "embedding:thingy, red", "an apple"]
    trained(small_recipe(base, tmp_path / "run", **WORD, **pictures, logging__sample_prompts=prompts))
    assert asked == ["a thingy_0 thingy_1", "thingy_0 thingy_1, red", "an apple"]
    other = small_recipe(base, tmp_path / "b", **pictures, logging__sample_prompts=["embedding:other"])
    with pytest.raises(RequestError, match=r"'embedding:other' uses an embedding from a file"):
        trained(other)


def test_dropped_captions_are_the_empty_one(base: Path, tmp_path: Path) -> None:
    recipe = small_recipe(base, tmp_path, data__kind="synthetic", objective__caption_dropout=0.5)
    loop = small_loop(recipe)
    subject: Any = loop.subject
    batch = next(small_feed(recipe, loop))
    for positions in ([0, 1], [2, 3], [4, 5], [6, 7]):
        draws = subject._draws(batch, positions)
        context, _ = subject._text(batch, draws)
        captions = [
            "" if dropped else caption
            for dropped, caption in zip(draws.drop_caption.tolist(), batch.captions, strict=True)
        ]
        wanted, _ = encode_captions(subject.model, captions)
        torch.testing.assert_close(context, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("targets", "rule"),
    [
        (["to_query"], r"\['to_query'\]: no layer name ends with it; the usual are \[to_q,"),
        (["to_q", "norm1"], "neither linear nor a convolution"),
        ([], "at least 1 item"),
    ],
)
def test_layers_that_take_no_lora_are_refused(
    base: Path, tmp_path: Path, targets: list[str], rule: str
) -> None:
    with pytest.raises(RequestError, match=rf"lora\.targets: .*{rule}"):
        small_loop(small_recipe(base, tmp_path, model__train="lora", lora__targets=targets))
