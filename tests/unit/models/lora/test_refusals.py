"""LoRA files that do not fit, or are something else: refused with the file's name and the first bad key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models.lora import read_adapter
from tests.small_models import shrunk
from tests.unit.models.lora_files import layers_of, random_updates, write_diffusers, write_kohya

SD15 = shrunk("sd15")
KEY = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k"
CONVOLUTION = "lora_unet_down_blocks_0_resnets_0_conv1"
DOWN, UP = torch.ones(4, 32), torch.ones(32, 4)
NAN, INFINITY = torch.full((4, 32), torch.nan), torch.full((4, 32), torch.inf)


def _layer(down: Tensor = DOWN, up: Tensor = UP, **more: Tensor) -> dict[str, Tensor]:
    return {f"{KEY}.lora_down.weight": down, f"{KEY}.lora_up.weight": up} | {
        f"{KEY}.{name}": tensor for name, tensor in more.items()
    }


def test_the_layer_of_these_tests_is_fine(tmp_path: Path) -> None:
    save_file(_layer(alpha=torch.tensor(2.0)), tmp_path / "lora.safetensors")
    ((target, update),) = read_adapter(tmp_path / "lora.safetensors", SD15).layers.items()
    assert target == ("unet", "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k")
    assert (update.rank, update.alpha) == (4, 2.0)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (_layer(up=torch.ones(32, 3)), rf"'{KEY}.lora_down.weight' and its up matrix differ in rank"),
        (_layer(down=torch.ones(0, 32), up=torch.ones(32, 0)), "differ in rank"),
        (_layer(down=torch.ones(32)), "differ in rank"),
        (
            _layer(down=torch.ones(4, 768)),
            rf"'{KEY}.lora_down.weight' .*32×768, .*32×32; the LoRA is for sd1,",
        ),
        (_layer(down=torch.ones(4, 2048)), "the LoRA is for sdxl, the model is Stable Diffusion 1.5, shrunk"),
        (_layer(up=torch.ones(64, 4)), "update of 64×32"),
        (_layer(alpha=torch.ones(2)), rf"'{KEY}.alpha' has shape \[2\], an alpha is a single number"),
        (_layer(**{"lora_mid.weight": torch.ones(4, 4)}), r"shape \[4, 4\], the layer is no convolution"),
        (_layer(down=NAN), rf"'{KEY}.lora_down.weight' holds NaN or infinity"),
        (_layer(down=INFINITY), "holds NaN or infinity"),
        (_layer(alpha=torch.tensor(torch.nan)), rf"'{KEY}.alpha' holds NaN"),
        (_layer(down=DOWN.to(torch.int8)), rf"'{KEY}.lora_down.weight' is torch.int8; quantized LoRAs"),
        ({f"{KEY}.lora_up.weight": UP}, rf"'{KEY}.lora_up.weight' has no matching 'down' matrix"),
        ({f"{KEY}.lora_down.weight": DOWN}, "has no matching 'up' matrix"),
        ({f"{KEY}.alpha": torch.tensor(1.0)}, "has no matching 'down' matrix"),
        (
            _layer() | {"lora_unet_nowhere.lora_down.weight": DOWN},
            "'lora_unet_nowhere.lora_down.weight' names no",
        ),
        (
            _layer() | {"lora_te2_text_projection.lora_down.weight": DOWN},
            "'lora_te2_text_projection.lora_down",
        ),
        (_layer() | {"unet.conv_in.bias": torch.ones(32)}, "'unet.conv_in.bias' names no layer"),
        ({"lora_unet_conv_norm_out.lora_down.weight": DOWN}, "names no layer"),
        ({"vae.decoder.conv_in.lora_A.weight": DOWN}, "names no layer"),
        (
            {"lora_te_text_model_embeddings_token_embedding.lora_down.weight": DOWN},
            "names no layer of Stable Diffusion 1.5, shrunk; is it for another base model",
        ),
        (
            _layer() | {"lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_k.lora_down.weight": DOWN},
            "are the same matrix of the same layer",
        ),
        ({f"{KEY}.hada_w1_a": DOWN}, rf"'{KEY}.hada_w1_a' belongs to LoHa, which is not supported"),
        ({f"{KEY}.lokr_w2": DOWN}, "belongs to LoKr"),
        (_layer(dora_scale=torch.ones(32, 1)), "belongs to DoRA"),
        ({"unet.conv_in.lora_magnitude_vector": torch.ones(32)}, "belongs to DoRA"),
        ({f"{KEY}.diff": torch.ones(32, 32)}, "belongs to a full difference"),
        ({f"{KEY}.oft_blocks": DOWN}, "belongs to OFT"),
        (_layer(scalar=torch.tensor(1.0)), rf"'{KEY}.scalar' belongs to LoRA with a trained scale"),
        ({f"{KEY}.a1.weight": DOWN, f"{KEY}.b2.weight": UP}, rf"'{KEY}.a1.weight' belongs to GLoRA"),
        ({f"{KEY}.weight": torch.ones(32), f"{KEY}.on_input": torch.tensor(True)}, "belongs to IA3"),
        ({f"{KEY}.weight": torch.ones(32)}, "belongs to IA3"),
        ({"base_model.model.mid_block.to_k.ia3_l": torch.ones(32, 1)}, "belongs to IA3"),
        ({"unet.conv_in.lora_B.bias": torch.ones(32)}, "belongs to LoRA with biases"),
        ({"unet.conv_in.lora_B.default.bias": torch.ones(32)}, "belongs to LoRA with biases"),
        (
            _layer() | {"bundle_emb.cat.string_to_param.*": DOWN},
            "belongs to an embedding bundled with a LoRA",
        ),
        (
            {f"{CONVOLUTION}.lora_down.weight": torch.ones(4, 32), f"{CONVOLUTION}.lora_up.weight": UP},
            "32×288",
        ),
        (
            {
                f"{CONVOLUTION}.lora_down.weight": torch.ones(4, 32, 1, 1),
                f"{CONVOLUTION}.lora_mid.weight": torch.ones(4, 4, 5, 5),
                f"{CONVOLUTION}.lora_up.weight": torch.ones(32, 4, 1, 1),
            },
            r"lora_mid.weight' has shape \[4, 4, 5, 5\], the layer needs \[4, 4, 3, 3\]",
        ),
    ],
)
def test_refused_by_its_first_bad_key(tensors: dict[str, Tensor], reason: str, tmp_path: Path) -> None:
    save_file({key: tensor.clone() for key, tensor in tensors.items()}, tmp_path / "lora.safetensors")
    with pytest.raises(ModelFileError, match=f"lora.safetensors: .*{reason}"):
        read_adapter(tmp_path / "lora.safetensors", SD15)


@pytest.mark.parametrize(
    ("trained_on", "used_on", "key"),
    [
        ("sdxl", "sd15", "lora_te2_text_model"),
        ("sd15", "sdxl", "down_blocks_0_attentions"),
    ],
)
def test_lora_for_another_base_is_refused(trained_on: str, used_on: str, key: str, tmp_path: Path) -> None:
    base = shrunk(trained_on)
    layers = layers_of(base, [part for part in base.parts() if part != "vae"])
    chosen = [pair for pair in layers if "attn" in pair[1]]
    file = write_kohya(tmp_path / "other.safetensors", random_updates(base, chosen, 1), 1.0)
    with pytest.raises(ModelFileError, match=rf"other.safetensors: '\S*{key}\S*' names no layer"):
        read_adapter(file, shrunk(used_on))


def test_other_widths_are_refused(tmp_path: Path) -> None:
    """The same names and other shapes, as Stable Diffusion 2 has beside 1."""
    sdxl = shrunk("sdxl")
    layers = [
        pair
        for pair in layers_of(sdxl, ["unet"])
        if pair[1] == "mid_block.attentions.0.transformer_blocks.0.attn2.to_k"
    ]
    file = write_diffusers(tmp_path / "other.safetensors", random_updates(sdxl, layers, 1))
    with pytest.raises(
        ModelFileError, match=r"belongs to an update of 96×80, .* is 96×32; the LoRA is for another"
    ):
        read_adapter(file, SD15)


def _settings(text: str | None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        save_file(
            {"base_model.model.conv_in.lora_A.weight": torch.ones(4, 4, 3, 3)},
            folder / "adapter_model.safetensors",
        )
        if text is not None:
            (folder / "adapter_config.json").write_text(text)

    return write


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_settings(None), "adapter_config.json: is missing"),
        (_settings("{"), "adapter_config.json: it is not JSON"),
        (_settings("{}"), "'base_model.model.conv_in.lora_A.weight' has no matching 'up' matrix"),
    ],
)
def test_broken_peft_folder(make: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(ModelFileError, match=reason):
        read_adapter(tmp_path, SD15)


def test_pattern_of_alphas_that_is_no_name_is_refused(tmp_path: Path) -> None:
    """A regular expression of a stranger is not run; ignoring it would use the wrong alpha."""
    save_file(
        {f"unet.conv_in.lora_{x}.weight": t for x, t in _matrices()}, tmp_path / "adapter_model.safetensors"
    )
    settings = {"lora_alpha": 2, "alpha_pattern": {"(a+)+$": 1}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelFileError, match=r"alpha_pattern '\(a\+\)\+\$' is not the plain name"):
        read_adapter(tmp_path, SD15)


@pytest.mark.parametrize(
    ("pattern", "alpha"), [("conv_in", 1.0), ("^conv_in$", 1.0), ("onv_in", 2.0), (r"^unet\.conv_in", 2.0)]
)
def test_pattern_of_alphas_is_the_end_of_a_name(pattern: str, alpha: float, tmp_path: Path) -> None:
    save_file(
        {f"unet.conv_in.lora_{x}.weight": t for x, t in _matrices()}, tmp_path / "adapter_model.safetensors"
    )
    settings = {"lora_alpha": 2, "alpha_pattern": {pattern: 1}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    assert [update.alpha for update in read_adapter(tmp_path, SD15).layers.values()] == [alpha]


def _matrices() -> list[tuple[str, Tensor]]:
    return [("A", torch.ones(4, 4, 3, 3)), ("B", torch.ones(32, 4, 1, 1))]


@pytest.mark.parametrize("note", ["", "{", "[1]", "null", '{"unet.lora_alpha": "many"}'])
def test_unreadable_note_of_diffusers_counts_as_none(note: str, tmp_path: Path) -> None:
    tensors = {f"unet.conv_in.lora_{x}.weight": t for x, t in _matrices()}
    save_file(tensors, tmp_path / "lora.safetensors", {"lora_adapter_metadata": note})
    (update,) = read_adapter(tmp_path / "lora.safetensors", SD15).layers.values()
    assert update.alpha == update.rank


@pytest.mark.parametrize("alpha", ["Infinity", "NaN", "1" + 400 * "0", "1e999"])
def test_an_alpha_that_makes_no_weights_is_refused(alpha: str, tmp_path: Path) -> None:
    tensors = {f"unet.conv_in.lora_{x}.weight": t for x, t in _matrices()}
    note = {"lora_adapter_metadata": f'{{"unet.lora_alpha": {alpha}}}'}
    save_file(tensors, tmp_path / "lora.safetensors", note)
    with pytest.raises(ModelFileError, match="its alpha for conv_in is not a number up to 1e\\+06"):
        read_adapter(tmp_path / "lora.safetensors", SD15)
