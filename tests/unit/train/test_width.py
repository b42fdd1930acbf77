"""A catalogue model at another width: it is trained, exported and opened as what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diffusers import DiffusionPipeline

from calotype.core.errors import RequestError
from calotype.engine.load import load
from calotype.models import catalogue
from calotype.train.builders import load_training_model
from calotype.train.export import export
from tests.small_models import shrunk
from tests.unit.train.runs import CPU, assert_same, small_recipe, trained


def test_a_wider_model_is_trained_and_carries_its_own_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = shrunk("emoji")
    monkeypatch.setattr(catalogue, "architecture", lambda _: small)
    changes = {"model__weights": "random", "model__width": 2, "trainer__max_steps": 1}
    recipe = small_recipe(Path("emoji"), tmp_path / "run", **changes)
    trained(recipe)
    export(recipe, tmp_path / "made", dtype="fp32")
    made = DiffusionPipeline.from_pretrained(tmp_path / "made", local_files_only=True)
    wide = [2 * width for width in small.unet["block_out_channels"]]
    assert made.unet.config.block_out_channels == wide
    assert made.text_encoder.config.hidden_size == 2 * small.text_encoders[0]["hidden_size"]
    narrow = load_training_model(small_recipe(Path("emoji"), tmp_path, model__weights="random"), CPU)
    assert_same(dict(made.vae.state_dict()), dict(narrow.vae.state_dict()))
    pictures = load(str(tmp_path / "made"), device="cpu", precision="fp32").generate("x", steps=1).images
    assert pictures[0].size == (64, 64)


@pytest.mark.parametrize("name", catalogue.names())
def test_a_wider_model_has_more_heads_of_the_same_size(name: str) -> None:
    full = catalogue.architecture(name)
    wide = full.widened(2)
    for part in full.parts():
        count, now = (sum(p.numel() for p in a.build(part).parameters()) for a in (full, wide))
        assert (now == count) if part == "vae" else (3 < now / count < 4), part
    heads = [_head_sizes(architecture.build("unet")) for architecture in (full, wide)]
    assert heads[0] == heads[1]
    assert full.widened(1) is full
    assert wide.name == f"{name}-2x"
    assert wide.unet["cross_attention_dim"] == sum(e["hidden_size"] for e in wide.text_encoders)


def _head_sizes(unet: Any) -> set[int]:
    return {layer.to_q.out_features // layer.heads for layer in unet.modules() if hasattr(layer, "to_q")}


def test_weights_that_exist_keep_their_width(base: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=r"model\.width: .* 2 times that needs new weights; set model\.weights"
    ):
        small_recipe(base, tmp_path, model__width=2)
    with pytest.raises(RequestError, match=r"random needs a catalog name.*, which is 'random:emoji'"):
        load_training_model(
            small_recipe(Path("random:emoji"), tmp_path, model__width=2, model__weights="random"), CPU
        )
