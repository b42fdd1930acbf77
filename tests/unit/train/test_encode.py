"""Pictures in parts, and captions whose tokens are remembered: nothing changes but the time it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calotype.train import encode
from calotype.train.builders import load_training_model
from calotype.train.encode import encode_images, tokenize
from tests.unit.train.runs import CPU, small_recipe


@pytest.mark.parametrize(("most", "parts"), [(6, [6]), (5, [3, 3]), (2, [2, 2, 2]), (0, [1] * 6)])
def test_parts_are_equal_and_together_the_whole(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, parts: list[int]
) -> None:
    model = load_training_model(small_recipe(base, tmp_path), CPU)
    pixels, posterior = torch.rand(6, 3, 16, 16) * 2 - 1, torch.randn(6, 4, 4, 4)
    whole = encode_images(model, pixels, posterior)
    seen: list[int] = []
    model.vae.encoder.register_forward_pre_hook(lambda _module, inputs: seen.append(len(inputs[0])))
    numbers_a_picture = model.vae.config.block_out_channels[0] * 16 * 16
    monkeypatch.setattr(encode, "_MAX_INDEX", most * numbers_a_picture)
    torch.testing.assert_close(encode_images(model, pixels, posterior), whole)
    assert seen == parts


@pytest.mark.parametrize("most", [2**18, 3])
def test_captions_have_the_tokens_of_the_library_however_often_they_come(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    model = load_training_model(small_recipe(base, tmp_path), CPU)
    monkeypatch.setattr(encode, "_MAX_CAPTIONS", most)
    batches = [["a cat", "", "a cat"], ["a dog " * 200, "a cat"], ["a bird", "a fox", "", "a cat"]]
    for captions in (*batches, *batches):
        (found,) = tokenize(model, captions)
        (tokenizer,) = model.tokenizers
        wanted = tokenizer(captions, padding="max_length", truncation=True, return_tensors="pt").input_ids
        assert torch.equal(found, wanted)
