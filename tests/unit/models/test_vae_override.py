"""A VAE from a file or folder of its own is the VAE it was written from, in every naming."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from calotype.core.errors import ModelFileError
from calotype.models.key_mapping.vae import OLD_ATTENTION
from calotype.models.save import write_folder, write_vae_folder
from calotype.models.vae_override import override_vae, read_vae, vae_sha256
from calotype.models.weights import RandomWeights
from tests.small_models import shrunk
from tests.unit.models.on_disk import assert_same_tensors, original_tensors, read_weights

SD15 = shrunk("sd15")
PREFIX = "first_stage_model."
CPU = torch.device("cpu")
TO_OLD = {f".attentions.0.{new}.": f".attentions.0.{old}." for old, new in OLD_ATTENTION.items()}


def _original() -> dict[str, Tensor]:
    return {name: t for name, t in original_tensors(SD15, seed=4).items() if name.startswith(PREFIX)}


def _without_prefix() -> dict[str, Tensor]:
    return {name.removeprefix(PREFIX): tensor for name, tensor in _original().items()}


def _with_training_leftovers() -> dict[str, Tensor]:
    """As the published kl-f8 files are: the discriminator of the training beside the autoencoder."""
    return {**_without_prefix(), "loss.logvar": torch.zeros(()), "model_ema.decay": torch.tensor(0.999)}


def _diffusers() -> dict[str, Tensor]:
    return read_weights(RandomWeights(SD15, seed=4))["vae"]


def _old_diffusers() -> dict[str, Tensor]:
    """As diffusers wrote the attention until mid-2023."""
    return {_old_name(name): tensor for name, tensor in _diffusers().items()}


def _old_name(name: str) -> str:
    for new, old in TO_OLD.items():
        name = name.replace(new, old)
    return name


def _whole_checkpoint() -> dict[str, Tensor]:
    return original_tensors(SD15, seed=4)


SOURCES = [
    _original,
    _without_prefix,
    _with_training_leftovers,
    _diffusers,
    _old_diffusers,
    _whole_checkpoint,
]


@pytest.mark.parametrize("source", SOURCES)
def test_every_naming_gives_the_same_autoencoder(source: Any, tmp_path: Path) -> None:
    save_file(source(), tmp_path / "vae.safetensors")
    module = read_vae(tmp_path / "vae.safetensors", SD15, torch.float32, CPU)
    assert_same_tensors(module.state_dict(), _diffusers())


def test_pickled_one_comes_through_the_sandbox(tmp_path: Path) -> None:
    torch.save({"state_dict": _with_training_leftovers(), "epoch": 3}, tmp_path / "vae.pt")
    module = read_vae(tmp_path / "vae.pt", SD15, torch.float32, CPU)
    assert_same_tensors(module.state_dict(), _diffusers())


@pytest.mark.parametrize(("name", "dtype"), [("sd15", torch.float16), ("sdxl", torch.float32)])
def test_sdxl_autoencoder_stays_out_of_half_precision(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    save_file(read_weights(RandomWeights(shrunk(name)))["vae"], tmp_path / "vae.safetensors")
    module: nn.Module = read_vae(tmp_path / "vae.safetensors", shrunk(name), torch.float16, CPU)
    assert {parameter.dtype for parameter in module.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"decoder.conv_in.weight": torch.zeros(48, 16, 3, 3)},
            r"'decoder.conv_in.weight' has shape \[48, 16, 3",
        ),
        ({"decoder.conv_in.weight": None}, "1 of .* missing, the first is 'decoder.conv_in.weight'"),
        (
            {"encoder.conv_in.bias": torch.full((16,), torch.nan)},
            "its vae hold NaN .* 'encoder.conv_in.bias'",
        ),
        (
            {"encoder.conv_in.bias": torch.zeros(16, dtype=torch.int8)},
            "is torch.int8; quantized files cannot",
        ),
    ],
)
def test_one_that_does_not_fit_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    tensors = {name: t for name, t in {**_diffusers(), **change}.items() if t is not None}
    save_file(tensors, tmp_path / "vae.safetensors")
    with pytest.raises(ModelFileError, match=f"vae.safetensors: .*{reason}"):
        read_vae(tmp_path / "vae.safetensors", SD15, torch.float32, CPU)


def test_something_else_is_refused_by_what_it_is(tmp_path: Path) -> None:
    save_file({"emb_params": torch.zeros(2, 768)}, tmp_path / "vae.safetensors")
    with pytest.raises(ModelFileError, match="is not a VAE but: embedding"):
        read_vae(tmp_path / "vae.safetensors", SD15, torch.float32, CPU)


def _folder(place: Path, **changes: Any) -> Path:
    write_folder(RandomWeights(replace(SD15, vae={**SD15.vae, **changes}), seed=4), place)
    return place


@pytest.mark.parametrize("inner", ["vae", "."])
def test_a_folder_gives_its_autoencoder_with_its_own_scale(inner: str, tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model", scaling_factor=0.5, shift_factor=0.25)
    module: Any = read_vae(folder / inner, SD15, torch.float32, CPU)
    assert_same_tensors(module.state_dict(), _diffusers())
    assert (module.config.scaling_factor, module.config.shift_factor) == (0.5, 0.25)


def test_weights_take_the_autoencoder_of_another_and_keep_the_rest(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model", scaling_factor=0.5)
    own = RandomWeights(SD15, seed=1)
    with override_vae(own, folder) as weights:
        found = read_weights(weights)
    assert weights.architecture.vae["scaling_factor"] == 0.5
    assert_same_tensors(found["vae"], _diffusers())
    for part in ("unet", "text_encoder"):
        assert_same_tensors(found[part], read_weights(own)[part])


def test_a_form_of_its_own_is_fine_while_its_latents_fit(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model", layers_per_block=1)
    module: Any = read_vae(folder, SD15, torch.float32, CPU)
    assert module.config.layers_per_block == 1


def test_the_digest_follows_weights_and_scale_but_not_the_place(tmp_path: Path) -> None:
    one = _folder(tmp_path / "one")
    write_vae_folder(RandomWeights(SD15, seed=4), tmp_path / "alone")
    same = [vae_sha256(one), vae_sha256(one / "vae"), vae_sha256(tmp_path / "alone")]
    assert len(set(same)) == 1
    scaled = vae_sha256(_folder(tmp_path / "scaled", scaling_factor=0.5))
    write_vae_folder(RandomWeights(SD15, seed=5), tmp_path / "other")
    assert len({same[0], scaled, vae_sha256(tmp_path / "other")}) == 3


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model") / "vae"
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"config\.json: is missing"):
        read_vae(folder, SD15, torch.float32, CPU)
