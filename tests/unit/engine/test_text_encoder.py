"""From prompts to embeddings, against the same computed directly with transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.core.errors import ModelFileError, NotFoundError, RequestError
from calotype.engine import text_encoder
from calotype.engine.engine import Engine
from calotype.engine.text_encoder import TextConditioner
from calotype.spec.generate_request import GenerateRequest
from tests.engines import difference, latents_of, relative, small_engine
from tests.small_models import shrunk

SIZE: dict[str, Any] = {"width": 16, "height": 16, "steps": 1}


@pytest.fixture(scope="module")
def sd2() -> Engine:
    """Its tokenizer pads with another token than its end mark."""
    return small_engine("sd2-base")


def no_words(name: str) -> list[Tensor]:
    raise AssertionError(f"nobody asked for {name}")


def conditioner(engine: Engine) -> TextConditioner:
    return TextConditioner(engine.model, no_words)


def encoded(engine: Engine, ids: list[int], encoder: int = 0) -> Tensor:
    """What the encoder says of one window, computed without any of our code."""
    tokenizer = engine.model.tokenizers[encoder]
    row = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
    row += [tokenizer.pad_token_id] * (tokenizer.model_max_length - len(row))
    with torch.inference_mode():
        output = engine.model.text_encoders[encoder](torch.tensor([row]), output_hidden_states=True)
    sdxl = engine.model.architecture.family == "sdxl"
    return output.hidden_states[-2] if sdxl else output.last_hidden_state


def ids_of(engine: Engine, words: str, encoder: int = 0) -> list[int]:
    return list(engine.model.tokenizers[encoder](words, add_special_tokens=False).input_ids)


@pytest.mark.parametrize("name", ["engine", "sd2"])
def test_a_plain_prompt_is_what_the_encoder_says(name: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(name)
    found = conditioner(engine).encode("a red apple")
    assert torch.allclose(found.context, encoded(engine, ids_of(engine, "a red apple")), atol=1e-6)
    assert found.pooled is None


@pytest.mark.parametrize("name", ["engine", "sd2"])
def test_weights_move_tokens_from_the_empty_prompt(name: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(name)
    found = conditioner(engine).encode("a (red:1.4) round (apple:-0.5)").context
    pieces = [("a", 1.0), ("red", 1.4), ("round", 1.0), ("apple", -0.5)]
    weights = torch.ones(77)
    ids: list[int] = []
    for words, weight in pieces:
        tokens = ids_of(engine, words)
        weights[1 + len(ids) : 1 + len(ids) + len(tokens)] = weight
        ids += tokens
    plain, empty = encoded(engine, ids), encoded(engine, [])
    assert torch.allclose(found, (plain - empty) * weights[:, None] + empty, atol=1e-5)
    assert not torch.allclose(found, plain, atol=1e-2)


def test_a_weight_of_one_changes_nothing(engine: Engine) -> None:
    plain = conditioner(engine).encode("a red apple").context
    assert torch.equal(conditioner(engine).encode("a (red:1.0) apple").context, plain)


def test_long_prompts_are_windows_of_75_end_to_end(engine: Engine) -> None:
    ids = ids_of(engine, "x" * 160)
    assert len(ids) == 160
    found = conditioner(engine).encode("x" * 160).context
    expected = [encoded(engine, part) for part in (ids[:75], ids[75:150], ids[150:])]
    assert found.shape[1] == 3 * 77
    assert torch.allclose(found, torch.cat(expected, dim=1), atol=1e-6)


def test_an_encoder_with_fewer_places_has_smaller_windows() -> None:
    full = shrunk("emoji")
    (encoder,), (tokenizer,) = full.text_encoders, full.tokenizers
    short = replace(
        full,
        text_encoders=({**encoder, "max_position_embeddings": 32},),
        tokenizers=({**tokenizer, "model_max_length": 32},),
    )
    engine = small_engine(architecture=short)
    ids = ids_of(engine, "x" * 40)
    found = conditioner(engine).encode("x" * 40).context
    assert found.shape[1] == 2 * 32
    expected = torch.cat([encoded(engine, ids[:30]), encoded(engine, ids[30:])], dim=1)
    assert torch.allclose(found, expected, atol=1e-6)
    weighted = conditioner(engine).encode("(x:1.5)").context
    empty = encoded(engine, [])
    assert torch.allclose(
        weighted[:, 1], (1.5 * encoded(engine, ids_of(engine, "x")) - 0.5 * empty)[:, 1], atol=1e-5
    )


def test_a_weighted_long_prompt_is_weighted_in_every_window(engine: Engine) -> None:
    found = conditioner(engine).encode("x" * 80 + " (yy:1.5)").context
    ids = ids_of(engine, "x" * 80) + ids_of(engine, "yy")
    weights = torch.ones(77)
    weights[1 + 5 : 1 + 7] = 1.5
    second, empty = encoded(engine, ids[75:]), encoded(engine, [])
    assert torch.allclose(found[:, :77], encoded(engine, ids[:75]), atol=1e-5)
    assert torch.allclose(found[:, 77:], (second - empty) * weights[:, None] + empty, atol=1e-5)


def test_very_many_windows_go_through_the_encoder_in_parts(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = conditioner(engine).encode("x" * 400).context
    monkeypatch.setattr(text_encoder, "WINDOWS_AT_ONCE", 2)
    assert torch.allclose(conditioner(engine).encode("x" * 400).context, at_once, atol=1e-6)


def test_both_of_sdxls_encoders_are_heard(sdxl: Engine) -> None:
    found = conditioner(sdxl).encode("a red apple, " * 30)
    ids = [ids_of(sdxl, "a red apple, " * 30, encoder) for encoder in (0, 1)]
    assert len(ids[0]) == 120
    for encoder, columns in ((0, slice(0, 32)), (1, slice(32, None))):
        windows = [encoded(sdxl, part, encoder) for part in (ids[encoder][:75], ids[encoder][75:])]
        assert torch.allclose(found.context[..., columns], torch.cat(windows, dim=1), atol=1e-5)
    tokenizer = sdxl.model.tokenizers[1]
    row = [tokenizer.bos_token_id, *ids[1][:75], tokenizer.eos_token_id]
    with torch.inference_mode():
        expected = sdxl.model.text_encoders[1](torch.tensor([row])).text_embeds
    assert found.pooled is not None
    assert torch.allclose(found.pooled, expected, atol=1e-5)


def test_prompts_are_remembered_until_forgotten(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = conditioner(engine)
    first = one.encode("a red apple")
    assert one.encode("a red apple") is first
    assert one.encode("a red apple", clip_skip=1) is not first
    one.clear_cache()
    assert one.encode("a red apple") is not first
    monkeypatch.setattr(text_encoder, "CACHE_BYTES", first.num_bytes * 2)
    for prompt in ("b", "c"):
        one.encode(prompt)
    assert one.encode("a red apple") is not first


def test_a_negative_prompt_shorter_than_the_prompt_counts_as_it_is(engine: Engine) -> None:
    """Guidance from the two prompts evaluated apart, each at its own length, and joined by hand."""
    prompt, negative = "a red apple and " * 10, "dark"
    guided = latents_of(engine, **SIZE, prompt=prompt, negative_prompt=negative, cfg=4.0)
    apart = [latents_of(engine, **SIZE, prompt=words, cfg=1.0) for words in (prompt, negative)]
    assert relative(guided, apart[1] + 4.0 * (apart[0] - apart[1])) < 1e-4
    assert relative(guided, apart[0]) > 1e-2


class TestLearnedWords:
    """Textual-inversion embeddings of the model folder."""

    def folder(self, place: Path, vectors: dict[str, Tensor]) -> Path:
        (place / "embeddings").mkdir()
        save_file(vectors, place / "embeddings" / "shiny.safetensors")
        return place

    def test_one_changes_the_picture_and_nothing_else(self, tmp_path: Path) -> None:
        folder = self.folder(
            tmp_path, {"emb_params": torch.randn(2, 32, generator=torch.Generator().manual_seed(1))}
        )
        own = small_engine("emoji", models_folder=folder)
        knobs: dict[str, Any] = {"width": 32, "height": 32, "steps": 2}
        before = own.generate("a red apple", **knobs).images[0]
        learned = own.generate("a embedding:shiny apple", **knobs)
        assert difference(learned.images[0], before) > 3
        assert difference(own.generate("a embedding:shiny apple", **knobs).images[0], learned.images[0]) == 0
        assert difference(own.generate("a red apple", **knobs).images[0], before) == 0
        assert learned.records[0].files.keys() == {"embeddings/shiny"}

    def test_one_that_was_written_anew_is_read_anew(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path, {"emb_params": torch.full((2, 32), 0.5)})
        own, said = small_engine("emoji", models_folder=folder), "a embedding:shiny apple"
        before = own.encode(said).context
        assert torch.equal(own.encode(said).context, before)
        save_file({"emb_params": torch.full((3, 32), -0.5)}, folder / "embeddings" / "shiny.safetensors")
        fresh = small_engine("emoji", models_folder=folder).encode(said).context
        assert not torch.allclose(fresh, before)
        assert torch.equal(own.encode(said).context, fresh)

    def test_its_vectors_stand_where_its_name_stood(self, tmp_path: Path) -> None:
        vectors = torch.randn(2, 32, generator=torch.Generator().manual_seed(1))
        own = small_engine("emoji", models_folder=self.folder(tmp_path, {"emb_params": vectors}))
        table = own.model.text_encoders[0].get_input_embeddings()
        run_alone = own._text.encode("a embedding:shiny b").context
        # The same two vectors, put in the place of two ordinary tokens.
        x, y = ids_of(own, "xy")
        kept = table.weight[[x, y]].clone()
        table.weight[[x, y]] = vectors
        try:
            stand_in = encoded(own, [*ids_of(own, "a"), x, y, *ids_of(own, "b")])
        finally:
            table.weight[[x, y]] = kept
        assert torch.allclose(run_alone, stand_in, atol=1e-5)

    def test_sdxl_takes_one_for_each_encoder(self, tmp_path: Path) -> None:
        vectors = {"clip_l": torch.ones(1, 32), "clip_g": torch.ones(1, 48)}
        own = small_engine("sdxl", models_folder=self.folder(tmp_path, vectors))
        plain, learned = (own._text.encode(words) for words in ("a b", "a embedding:shiny"))
        assert learned.pooled is not None
        assert plain.pooled is not None
        for columns in (slice(0, 32), slice(32, None)):
            assert not torch.allclose(plain.context[..., columns], learned.context[..., columns], atol=1e-2)

    def test_the_summary_is_read_at_the_end_mark(self, tmp_path: Path) -> None:
        """A learned word has a higher number than the end mark, and old models look for the highest."""
        vectors = {"clip_l": torch.ones(1, 32), "clip_g": torch.ones(1, 48)}
        own = small_engine("sdxl", models_folder=self.folder(tmp_path, vectors))
        short, longer = (own._text.encode(words).pooled for words in ("embedding:shiny", "embedding:shiny b"))
        assert short is not None
        assert longer is not None
        assert not torch.allclose(short, longer, atol=1e-3)

    @pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..\\outside", "%2e%2e/outside"])
    def test_names_stay_inside_the_folder(self, tmp_path: Path, name: str) -> None:
        save_file({"emb_params": torch.ones(1, 32)}, tmp_path / "outside.safetensors")
        own = small_engine("emoji", models_folder=self.folder(tmp_path, {"emb_params": torch.ones(1, 32)}))
        with pytest.raises(RequestError, match="is not a usable name"):
            own.generate(f"embedding:{name}", **SIZE)

    def test_an_unknown_one_is_named_with_the_nearest(self, tmp_path: Path) -> None:
        own = small_engine("emoji", models_folder=self.folder(tmp_path, {"emb_params": torch.ones(1, 32)}))
        with pytest.raises(NotFoundError, match=r"no 'shinny' in .*did you mean 'shiny'"):
            own.generate("embedding:shinny", **SIZE)

    def test_one_for_another_model_is_refused(self, tmp_path: Path) -> None:
        own = small_engine("emoji", models_folder=self.folder(tmp_path, {"emb_params": torch.ones(1, 768)}))
        with pytest.raises(ModelFileError, match="the embedding is for another base model"):
            own.generate("embedding:shiny", **SIZE)


def test_an_encoder_may_answer_in_the_same_place_every_time() -> None:
    """As a replayed graph does, which also reads the table of words where it was when it was recorded."""
    engine = small_engine("sdxl")
    made: list[int] = []

    def graphed(encoding: text_encoder.Encoding) -> text_encoder.Encoding:
        made.append(0)
        places: dict[Any, Any] = {}

        def replayed(ids: Tensor) -> tuple[Tensor, Tensor | None]:
            context, summary = places.setdefault(ids.shape, encoding(ids))
            now, now_summary = encoding(ids)
            context.copy_(now)
            if summary is not None and now_summary is not None:
                summary.copy_(now_summary)
            return context, summary

        return replayed

    widths = [each.get_input_embeddings().weight.shape[1] for each in engine.model.text_encoders]
    words = [torch.randn(2, width) for width in widths]
    found = TextConditioner(engine.model, lambda _: words, run=graphed)
    prompts = ["a red apple", "a very long description " * 60, "a fox", "a (red:1.3) apple"]
    kept = [found.encode(prompt) for prompt in prompts]
    for prompt, one in zip(prompts, kept, strict=True):
        plain = conditioner(engine).encode(prompt)
        assert torch.equal(one.context, plain.context)
        assert one.pooled is not None
        assert plain.pooled is not None
        assert torch.equal(one.pooled, plain.pooled)
    assert len(made) == len(widths)
    found.encode("embedding:new")
    assert len(made) == 2 * len(widths)


@pytest.mark.parametrize("model", ["emoji", "sdxl"])
def test_a_long_prompt_read_in_slices_is_the_same_as_read_at_once(model: str) -> None:
    prompt = "a (red:1.2) apple, " * 800
    own, at_once = small_engine(model), small_engine(model).encode(prompt)
    request = own.resolve_defaults(
        GenerateRequest.parse({"prompt": prompt, "negative_prompt": "blue", **SIZE})
    )
    sizes: list[int] = []
    for encoder in own.model.text_encoders:
        encoder.register_forward_pre_hook(
            lambda *given: sizes.append(len(given[-1]["input_ids"])), with_kwargs=True
        )
    slices, yields = own.encode_in_slices(request), 0
    while True:
        before = len(sizes)
        try:
            next(slices)
        except StopIteration as end:
            made = end.value
            break
        finally:
            assert sum(sizes[before:]) <= text_encoder.WINDOWS_AT_ONCE, "one slice at a time"
        yields += 1
        # Another job's prompt is read in between.
        own.encode(f"a dog {yields}")
    assert own.num_windows(request) > 2 * text_encoder.WINDOWS_AT_ONCE
    assert max(sizes) == text_encoder.WINDOWS_AT_ONCE
    assert torch.equal(made.positive.context, at_once.context)
    assert torch.equal(made.negative.context, own.encode("blue").context)


def test_a_prompt_too_large_to_be_remembered_drops_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    own = small_engine("emoji")
    dog = own.encode("a dog")
    monkeypatch.setattr(text_encoder, "CACHE_BYTES", 2 * dog.num_bytes)
    own.encode("a red apple, " * 400)
    assert own.encode("a dog") is dog
