"""Files from one layout to the next and back: every tensor identical, those without a place included."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from calotype.core.errors import RequestError
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.diffusers_layout import read_architecture
from calotype.models.resolve import resolve_model
from calotype.models.save import write_folder, write_single_file
from calotype.models.weights import EXTRA_STEM, RandomWeights
from tests.small_models import shrunk
from tests.unit.models.conftest import FolderOf
from tests.unit.models.on_disk import assert_same_parts, assert_same_tensors, folder_tensors, original_tensors

SD2_WIDTH = 32
SD2_NEXT_LAYER = 2
"""OpenCLIP has one layer more than the 23 that Stable Diffusion 2 uses; the shrunk model uses two."""

SCHEDULE = {"betas": torch.rand(1000, dtype=torch.float64), "alphas_cumprod": torch.rand(1000)}
EMA = {
    "model_ema.decay": torch.tensor(0.9999),
    "model_ema.num_updates": torch.tensor(470_000, dtype=torch.int32),
    "model_ema.diffusion_modelinput_blocks00weight": torch.rand(32, 4, 3, 3),
}


def _unused_open_clip(prefix: str) -> dict[str, Tensor]:
    layer = f"{prefix}transformer.resblocks.{SD2_NEXT_LAYER}."
    return {
        f"{layer}attn.in_proj_weight": torch.rand(3 * SD2_WIDTH, SD2_WIDTH),
        f"{layer}attn.in_proj_bias": torch.rand(3 * SD2_WIDTH),
        f"{layer}ln_1.weight": torch.rand(SD2_WIDTH),
        f"{prefix}text_projection": torch.rand(SD2_WIDTH, SD2_WIDTH),
        f"{prefix}logit_scale": torch.tensor(4.6),
    }


def _positions(prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}text_model.embeddings.position_ids": torch.arange(77)[None]}


EXTRA = {
    "sd15": {**SCHEDULE, **EMA, **_positions("cond_stage_model.transformer.")},
    "sd2-base": {**SCHEDULE, **_unused_open_clip("cond_stage_model.model.")},
    "sdxl": {
        **_positions("conditioner.embedders.0.transformer."),
        "conditioner.embedders.1.model.logit_scale": torch.tensor(4.6),
        "denoiser.sigmas": torch.rand(1000),
    },
    "sdxl-refiner": {"conditioner.embedders.0.model.logit_scale": torch.tensor(4.6)},
}


def _as_trained(name: str) -> dict[str, Tensor]:
    """An original file's tensors, the autoencoder in fp16, with what trainers leave beside the weights."""
    tensors = original_tensors(shrunk(name), seed=5)
    for key in [key for key in tensors if key.startswith("first_stage_model.")]:
        tensors[key] = tensors[key].half()
    return {**tensors, **EXTRA[name]}


def _config(place: Path, architecture: Architecture) -> Path:
    file = place / "architecture.json"
    file.write_text(json.dumps(architecture.as_dict()))
    return file


@pytest.mark.parametrize("name", EXTRA)
def test_ckpt_to_folder_to_safetensors_to_ckpt(name: str, tmp_path: Path) -> None:
    trained, config = _as_trained(name), _config(tmp_path, shrunk(name))
    first, folder = tmp_path / "first.ckpt", tmp_path / "folder"
    torch.save({"state_dict": trained, "global_step": 470_000}, first)
    with resolve_model(str(first), config=config).weights as weights:
        write_folder(weights, folder)
    with resolve_model(str(folder)).weights as weights:
        write_single_file(weights, tmp_path / "single.safetensors")
    assert_same_tensors(load_file(tmp_path / "single.safetensors"), trained)
    # The single file says itself what it is.
    with resolve_model(str(tmp_path / "single.safetensors")).weights as weights:
        write_single_file(weights, tmp_path / "last.ckpt")
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert last.pop("calotype.architecture").dtype == torch.uint8
    assert_same_tensors(last, trained)
    # And so does the ckpt, as it is none that is known by its tensors.
    with resolve_model(str(tmp_path / "last.ckpt")).weights as weights:
        assert weights.architecture.unet == shrunk(name).unet


def test_a_ckpt_of_a_model_that_is_known_holds_its_tensors_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "architecture", shrunk)
    write_single_file(RandomWeights(shrunk("sd15")), tmp_path / "a.ckpt")
    written = torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"]
    assert_same_tensors(written, original_tensors(shrunk("sd15"), 0))


def test_folder_parts_keep_their_own_dtypes(tmp_path: Path) -> None:
    torch.save({"state_dict": _as_trained("sd15")}, tmp_path / "a.ckpt")
    with resolve_model(str(tmp_path / "a.ckpt"), config=_config(tmp_path, shrunk("sd15"))).weights as weights:
        write_folder(weights, tmp_path / "folder")
    dtypes = {
        part: {t.dtype for t in ts.values()} for part, ts in folder_tensors(tmp_path / "folder").items()
    }
    assert dtypes == {
        "unet": {torch.float32},
        "vae": {torch.float16},
        "text_encoder": {torch.float32},
    }
    assert_same_tensors(load_file(tmp_path / "folder" / f"{EXTRA_STEM}.safetensors"), EXTRA["sd15"])


def test_extra_tensors_can_be_left_behind(tmp_path: Path) -> None:
    torch.save({"state_dict": _as_trained("sd2-base")}, tmp_path / "a.ckpt")
    config = _config(tmp_path, shrunk("sd2-base"))
    with resolve_model(str(tmp_path / "a.ckpt"), config=config).weights as weights:
        write_folder(weights, tmp_path / "folder", keep_extra=False)
        write_single_file(weights, tmp_path / "single.safetensors", keep_extra=False)
    assert not (tmp_path / "folder" / f"{EXTRA_STEM}.safetensors").exists()
    assert load_file(tmp_path / "single.safetensors").keys() == original_tensors(shrunk("sd2-base")).keys()


@pytest.mark.parametrize("name", ["sd15", "sdxl"])
def test_conversion_to_half_precision(name: str, folder_of: FolderOf, tmp_path: Path) -> None:
    expected = {
        part: {name: tensor.half() for name, tensor in tensors.items()}
        for part, tensors in folder_tensors(folder_of(name)).items()
    }
    with resolve_model(str(folder_of(name))).weights as weights:
        write_folder(weights, tmp_path / "half", dtype=torch.float16)
        write_single_file(weights, tmp_path / "half.safetensors", dtype=torch.float16)
    assert_same_parts(folder_tensors(tmp_path / "half"), expected)
    with resolve_model(str(tmp_path / "half.safetensors")).weights as weights:
        write_folder(weights, tmp_path / "again")
    assert_same_parts(folder_tensors(tmp_path / "again"), expected)


def test_half_precision_leaves_whole_numbers_alone(tmp_path: Path) -> None:
    torch.save({"state_dict": _as_trained("sd15")}, tmp_path / "a.ckpt")
    with resolve_model(str(tmp_path / "a.ckpt"), config=_config(tmp_path, shrunk("sd15"))).weights as weights:
        write_single_file(weights, tmp_path / "half.safetensors", dtype=torch.float16)
    half = load_file(tmp_path / "half.safetensors")
    assert {name: half[name].dtype for name in EMA} == {name: tensor.dtype for name, tensor in EMA.items()}
    assert half["model.diffusion_model.out.2.bias"].dtype == torch.float16


@pytest.mark.parametrize("level", ["", "text_model."])
@pytest.mark.parametrize("name", ["sd15", "sd2-base", "sdxl"])
def test_file_that_a_script_of_diffusers_wrote(name: str, level: str, tmp_path: Path) -> None:
    """With transformers 5 there is no `text_model.` level, which the scripts rename OpenCLIP's encoder by."""
    tensors = original_tensors(shrunk(name))
    save_file(_by_script(name, tensors, level), tmp_path / "m")
    with resolve_model(str(tmp_path / "m"), config=_config(tmp_path, shrunk(name))).weights as weights:
        assert weights.extra() is None
        write_single_file(weights, tmp_path / "out.safetensors")
    assert_same_tensors(load_file(tmp_path / "out.safetensors"), tensors)


def _by_script(name: str, tensors: dict[str, Tensor], level: str) -> dict[str, Tensor]:
    """The same model as convert_diffusers_to_original_*.py of diffusers 0.42 writes it from a folder whose
    plain text encoder's names begin with `level`."""
    kept = {key: tensor for key, tensor in tensors.items() if not key.startswith(("cond_", "conditioner."))}
    weights = RandomWeights(shrunk(name))
    prefix = "conditioner.embedders.0.transformer." if name == "sdxl" else "cond_stage_model.transformer."
    for key in weights.specs("text_encoder"):
        renamed = level + key.removeprefix("text_model.")
        kept[prefix + renamed] = weights.read("text_encoder", key)
    if name == "sdxl":
        kept |= {key: t for key, t in tensors.items() if key.startswith("conditioner.embedders.1.model.")}
    return kept


# What the script for SDXL leaves of OpenCLIP's names where the second encoder has no such level either.
HALF_RENAMED = {
    "transformer.resblocks.": "encoder.layers.",
    "ln_final.": "final_layer_norm.",
    "token_embedding.weight": "embeddings.token_embedding.weight",
    "positional_embedding": "embeddings.position_embedding.weight",
}


def test_second_encoder_without_the_text_model_level(tmp_path: Path) -> None:
    tensors = original_tensors(shrunk("sdxl"))
    prefix, written = "conditioner.embedders.1.model.", {}
    for key, tensor in tensors.items():
        rest = key.removeprefix(prefix)
        half = next(
            (new + rest.removeprefix(old) for old, new in HALF_RENAMED.items() if rest.startswith(old)), rest
        )
        written[prefix + half if rest != key else key] = tensor
    # Scripts before 2024 left the projection as a linear layer has it.
    written[f"{prefix}text_projection.weight"] = written.pop(f"{prefix}text_projection").T.contiguous()
    save_file(written, tmp_path / "m")
    with resolve_model(str(tmp_path / "m"), config=_config(tmp_path, shrunk("sdxl"))).weights as weights:
        write_single_file(weights, tmp_path / "out.safetensors")
    assert_same_tensors(load_file(tmp_path / "out.safetensors"), tensors)


def test_pieces_of_a_joined_tensor_can_be_read_in_any_order(tmp_path: Path) -> None:
    source = RandomWeights(shrunk("sd2-base"))
    write_single_file(source, tmp_path / "a.safetensors")
    with resolve_model(str(tmp_path / "a.safetensors")).weights as weights:
        names = list(weights.specs("text_encoder"))
        for name in [*reversed(names), *names, *sorted(names, key=hash)]:
            assert torch.equal(weights.read("text_encoder", name), source.read("text_encoder", name)), name


@pytest.mark.parametrize("target", ["safetensors", "ckpt", "folder"])
def test_what_the_model_predicts_is_kept(target: str, tmp_path: Path) -> None:
    """Nothing in the shape of a file shows it, and the wrong one makes noise of every picture."""
    small = shrunk("emoji")
    marks = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}
    source = RandomWeights(replace(small, scheduler={**small.scheduler, **marks}))
    if target == "folder":
        write_folder(source, tmp_path / "folder")
        scheduler = read_architecture(tmp_path / "folder").scheduler
    else:
        write_single_file(source, tmp_path / f"file.{target}")
        if target == "ckpt":
            assert {"v_pred", "ztsnr"} <= torch.load(tmp_path / "file.ckpt", weights_only=True)[
                "state_dict"
            ].keys()
            return
        with safe_open(tmp_path / "file.safetensors", "pt") as file:
            assert file.metadata()["modelspec.prediction_type"] == "v"
        with resolve_model(str(tmp_path / "file.safetensors")).weights as weights:
            scheduler = weights.architecture.scheduler
    assert {key: scheduler[key] for key in marks} == marks


@pytest.mark.parametrize("target", ["there.safetensors", "there.ckpt", "there"])
def test_nothing_is_overwritten(target: str, tmp_path: Path) -> None:
    (tmp_path / target).write_text("dear")
    write = write_single_file if "." in target else write_folder
    with pytest.raises(RequestError, match="exists already; choose another name"):
        write(RandomWeights(shrunk("emoji")), tmp_path / target)
    assert (tmp_path / target).read_text() == "dear"


def test_single_file_name_has_to_say_the_format(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"'model.pt' should end in .safetensors or .ckpt"):
        write_single_file(RandomWeights(shrunk("emoji")), tmp_path / "model.pt")
