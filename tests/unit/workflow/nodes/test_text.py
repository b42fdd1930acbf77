"""Text to CONDITIONING: the engine's own encodings, layers counted from the end, a text for each encoder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.engine.engine import Engine
from calotype.models import catalogue
from calotype.workflow.nodes.impl.text import skipped_layers
from calotype.workflow.nodes.value_types import ModelValue
from tests.small_models import shrunk
from tests.workflows import Host

TEXT = "a (red:1.3) apple, embedding:shiny"


def _clip(host: Host, name: str) -> Any:
    return host.node("CheckpointLoaderSimple", ckpt_name=name)[1]


def _engine(host: Host, name: str) -> Engine:
    return host.models.for_unet(ModelValue(host.node("CheckpointLoaderSimple", ckpt_name=name)[0].reference))


def _hidden(engine: Engine, index: int, text: str, layer: int, *, normed: bool) -> Tensor:
    """A layer's output by transformers alone."""
    tokenizer, encoder = engine.model.tokenizers[index], engine.model.text_encoders[index]
    ids = tokenizer(text, padding="max_length", max_length=77, return_tensors="pt").input_ids
    hidden = encoder(input_ids=ids, output_hidden_states=True).hidden_states[layer]
    body = getattr(encoder, "text_model", encoder)
    return body.final_layer_norm(hidden) if normed else hidden


@pytest.mark.parametrize("layer", [-1, -2])
def test_a_layer_before_the_last_is_normed_in_stable_diffusion_1(host: Host, layer: int) -> None:
    clip = host.node("CLIPSetLastLayer", clip=_clip(host, "sd15"), stop_at_clip_layer=layer)
    ((made, options),) = host.node("CLIPTextEncode", text="an apple", clip=clip)
    expected = _hidden(_engine(host, "sd15"), 0, "an apple", layer, normed=True)
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)
    assert options == {}


@pytest.mark.parametrize(("layer", "found"), [(None, -2), (-1, -1), (-2, -2)])
def test_sdxl_leaves_the_last_layer_out_unless_it_is_named(host: Host, layer: int | None, found: int) -> None:
    clip, engine = _clip(host, "sdxl"), _engine(host, "sdxl")
    if layer is not None:
        clip = host.node("CLIPSetLastLayer", clip=clip, stop_at_clip_layer=layer)
    ((made, options),) = host.node("CLIPTextEncode", text="an apple", clip=clip)
    each = [_hidden(engine, index, "an apple", found, normed=False) for index in (0, 1)]
    torch.testing.assert_close(made, torch.cat(each, -1), atol=1e-5, rtol=1e-5)
    assert options["pooled_output"].shape == (1, 48)


@pytest.mark.parametrize(
    ("family", "layer", "skipped"),
    [
        ("sd15", -12, 11),
        ("sd15", -13, 0),
        ("sd2-base", -1, 0),
        ("sd2-base", -2, 0),
        ("sd2-base", -3, 1),
        ("sdxl", -3, 1),
        ("sdxl", -24, -1),
    ],
)
def test_layers_are_counted_as_in_the_original_encoders(family: str, layer: int, skipped: int) -> None:
    """Stable Diffusion 2's has a last layer that nobody used; more than there are is the last."""
    assert skipped_layers(layer, catalogue.architecture(family)) == skipped


def test_weights_and_learned_words_are_the_engines(host: Host) -> None:
    ((made, _),) = host.node("CLIPTextEncode", text=TEXT, clip=_clip(host, "sd15"))
    assert torch.equal(made, _engine(host, "sd15").encode(TEXT).context)
    ((plain, _),) = host.node("CLIPTextEncode", text="a red apple, shiny", clip=_clip(host, "sd15"))
    assert not torch.equal(made, plain)


def test_a_learned_word_that_is_not_there_is_named_before_anything_runs(host: Host) -> None:
    def problem(text: str) -> Any:
        check = host.registry["CLIPTextEncode"].check
        assert check is not None
        return check(host.catalogue, {"text": text})

    assert problem(TEXT) is None
    assert problem("a embedding:shiny.safetensors apple") is None
    assert problem("an apple") is None
    assert "text: there is no embedding 'shinny'; did you mean 'shiny'" in problem("(embedding:shinny:1.2)")


def test_a_learned_word_whose_file_changes_is_read_again(host: Host, folder: Path) -> None:
    changes = host.registry["CLIPTextEncode"].changes
    assert changes is not None
    context: Any = host
    before = changes(context, {"text": TEXT})
    assert before is not None
    assert changes(context, {"text": TEXT}) == before
    assert changes(context, {"text": "an apple"}) is None
    os.utime(folder / "embeddings" / "shiny.safetensors", (1, 1))
    assert changes(context, {"text": TEXT}) != before


def test_sdxl_reads_a_text_with_each_encoder_and_keeps_the_sizes(host: Host) -> None:
    engine = _engine(host, "sdxl")
    sizes = {"width": 800, "height": 600, "crop_w": 1, "crop_h": 2, "target_width": 3, "target_height": 4}
    ((made, options),) = host.node(
        "CLIPTextEncodeSDXL", clip=_clip(host, "sdxl"), text_g="a pear", text_l="an apple", **sizes
    )
    first = shrunk("sdxl").text_encoders[0]["hidden_size"]
    both = {text: engine.encode(text) for text in ("an apple", "a pear")}
    assert torch.equal(made[..., :first], both["an apple"].context[..., :first])
    assert torch.equal(made[..., first:], both["a pear"].context[..., first:])
    summary = both["a pear"].pooled
    assert summary is not None
    assert torch.equal(options.pop("pooled_output"), summary)
    assert options == sizes


def test_the_shorter_of_two_texts_is_filled_up_with_nothing(host: Host) -> None:
    engine = _engine(host, "sdxl")
    long = "an apple " * 40
    made = engine.encode((long, "a pear"))
    first = shrunk("sdxl").text_encoders[0]["hidden_size"]
    assert torch.equal(made.context[..., :first], engine.encode(long).context[..., :first])
    empty = engine.encode("").context[..., first:]
    torch.testing.assert_close(made.context[:, 77:154, first:], empty, atol=1e-5, rtol=1e-5)


def test_the_refiner_is_told_a_score(host: Host) -> None:
    ((made, options),) = host.node(
        "CLIPTextEncodeSDXLRefiner", clip=_clip(host, "sdxl-refiner"), text="an apple", ascore=7.0
    )
    assert made.shape == (1, 77, 48)
    assert options.pop("pooled_output").shape == (1, 48)
    assert options == {"aesthetic_score": 7.0, "width": 1024, "height": 1024}
