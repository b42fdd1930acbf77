"""Which model a single original file is: by its own word, by its keys, by the marks of what it predicts."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.models import catalogue
from calotype.models.architecture import Architecture
from calotype.models.files.open import open_tensors
from calotype.models.sampling_defaults import SamplingDefaults, sampling_defaults
from calotype.models.single_file import ARCHITECTURE_KEY, LATE_BIAS, architecture_of
from calotype.models.weights import SingleFileWeights
from tests.small_models import shrunk
from tests.unit.models.on_disk import original_tensors

FIRST = "model.diffusion_model.input_blocks.0.0.weight"
SD1 = "cond_stage_model.transformer.text_model.final_layer_norm.weight"
SD2 = "cond_stage_model.model.ln_final.weight"
SDXL = "conditioner.embedders.1.model.ln_final.weight"
REFINER = "conditioner.embedders.0.model.ln_final.weight"
EMPTY = torch.empty(0)


def _file(place: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> Path:
    """The few tensors that are looked at; the architecture is told before any other is read."""
    path = place / "file.safetensors"
    save_file({FIRST: torch.zeros(320, 4, 3, 3), **tensors}, path, metadata)
    return path


def _architecture(path: Path) -> Architecture:
    with open_tensors(path) as file:
        return architecture_of(file)


@pytest.mark.parametrize(
    ("mark", "name"), [(SD1, "sd15"), (SD2, "sd2-base"), (SDXL, "sdxl"), (REFINER, "sdxl-refiner")]
)
def test_keys_tell_the_model(mark: str, name: str, tmp_path: Path) -> None:
    assert _architecture(_file(tmp_path, {mark: torch.zeros(1)})) == catalogue.architecture(name)


@pytest.mark.parametrize(
    ("mark", "pipeline"),
    [(SD1, "StableDiffusionInpaintPipeline"), (SDXL, "StableDiffusionXLInpaintPipeline")],
)
def test_inpainting_model_is_told_by_its_first_convolution(mark: str, pipeline: str, tmp_path: Path) -> None:
    architecture = _architecture(_file(tmp_path, {mark: torch.zeros(1), FIRST: torch.zeros(320, 9, 3, 3)}))
    assert architecture.unet["in_channels"] == 9
    assert architecture.pipeline == pipeline


@pytest.mark.parametrize(
    ("marks", "metadata", "expected"),
    [
        ({}, {}, "epsilon"),
        ({"v_pred": EMPTY}, {}, "v_prediction"),
        ({}, {"modelspec.prediction_type": "v"}, "v_prediction"),
        ({}, {"modelspec.prediction_type": "epsilon"}, "epsilon"),
        ({}, {"ss_v2": "True"}, "epsilon"),
    ],
)
@pytest.mark.parametrize("mark", [SD1, SD2, SDXL])
def test_prediction_is_told_by_marks(
    mark: str, marks: dict[str, Tensor], metadata: dict[str, str], expected: str, tmp_path: Path
) -> None:
    architecture = _architecture(_file(tmp_path, {mark: torch.zeros(1), **marks}, metadata))
    assert architecture.prediction_type == expected
    assert not architecture.scheduler.get("rescale_betas_zero_snr")


def test_zero_terminal_snr_is_told_by_its_mark(tmp_path: Path) -> None:
    architecture = _architecture(_file(tmp_path, {SDXL: torch.zeros(1), "v_pred": EMPTY, "ztsnr": EMPTY}))
    assert architecture.scheduler["rescale_betas_zero_snr"] is True


def _bias(spread: float) -> Tensor:
    return spread * torch.tensor([1.0, -1.0]).repeat(160)


@pytest.mark.parametrize(
    ("mark", "spread", "metadata", "expected", "native_size"),
    [
        (SD2, 0.05, {}, "epsilon", 512),
        (SD2, 0.15, {}, "v_prediction", 768),
        (SD2, 0.15, {"modelspec.prediction_type": "epsilon"}, "epsilon", 512),
        (SD2, 0.15, {"modelspec.prediction_type": "v"}, "v_prediction", 768),
        (SD1, 0.15, {}, "epsilon", 512),
    ],
)
def test_late_bias_tells_the_768_pixel_models_of_stable_diffusion_2(
    mark: str, spread: float, metadata: dict[str, str], expected: str, native_size: int, tmp_path: Path
) -> None:
    tensors = {mark: torch.zeros(1), LATE_BIAS: _bias(spread)}
    architecture = _architecture(_file(tmp_path, tensors, metadata))
    assert (architecture.prediction_type, architecture.native_size) == (expected, native_size)
    assert architecture.unet["sample_size"] * 8 == native_size


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({}, "is a checkpoint for unknown, which is not supported"),
        ({SDXL: torch.zeros(1), "edm_mean": torch.zeros(1)}, "was trained with EDM preconditioning"),
        ({SD1: torch.zeros(1), FIRST: torch.zeros(320)}, r"has shape \[320\], which is no convolution"),
    ],
)
def test_what_cannot_be_run_is_refused(tensors: dict[str, Tensor], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=f"file.safetensors: .*{reason}"):
        _architecture(_file(tmp_path, tensors))


def test_own_word_wins_over_keys(tmp_path: Path) -> None:
    metadata = {ARCHITECTURE_KEY: json.dumps(shrunk("sd15").as_dict())}
    assert _architecture(_file(tmp_path, {SDXL: torch.zeros(1)}, metadata)) == shrunk("sd15")


@pytest.mark.parametrize("word", ["", "{", "[]", "null", '{"name": 1}', "[" * 50_000])
def test_own_word_that_is_broken_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=f"'{ARCHITECTURE_KEY}' cannot be used"):
        _architecture(_file(tmp_path, {SD1: torch.zeros(1)}, {ARCHITECTURE_KEY: word}))
    tensor = torch.tensor(list(word.encode()), dtype=torch.uint8)
    with pytest.raises(ModelFileError, match=f"'{ARCHITECTURE_KEY}' cannot be used"):
        _architecture(_file(tmp_path, {SD1: torch.zeros(1), ARCHITECTURE_KEY: tensor}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"first_stage_model.decoder.conv_in.bias": None},
            "1 of .* missing, the first is 'first_stage_model",
        ),
        (
            {FIRST: torch.zeros(32, 9, 3, 3)},
            r"shape \[32, 9, 3, 3\] where this architecture has \[32, 4, 3, 3\]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    tensors = {**original_tensors(shrunk("emoji")), **change}
    save_file({name: t for name, t in tensors.items() if t is not None}, tmp_path / "file")
    with pytest.raises(ModelFileError, match=reason):
        SingleFileWeights(open_tensors(tmp_path / "file"), shrunk("emoji"))


@pytest.mark.parametrize("scale", ["scale_weight", "weight_scale", "scale"])
def test_weights_with_scales_beside_them_are_refused(scale: str, tmp_path: Path) -> None:
    """As tools for eight bits write them: each weight was divided by its scale."""
    layer = "model.diffusion_model.time_embed.0"
    tensors = original_tensors(shrunk("emoji"))
    tensors[f"{layer}.weight"] = tensors[f"{layer}.weight"].to(torch.float8_e4m3fn)
    save_file(tensors, tmp_path / "plain")
    with SingleFileWeights(open_tensors(tmp_path / "plain"), shrunk("emoji")) as plain:
        assert plain.specs("unet")["time_embedding.linear_1.weight"].dtype == torch.float8_e4m3fn
    save_file({**tensors, f"{layer}.{scale}": torch.tensor(0.1)}, tmp_path / "scaled")
    with pytest.raises(ModelFileError, match=f"'{layer}.{scale}' is the scale of '{layer}.weight'"):
        SingleFileWeights(open_tensors(tmp_path / "scaled"), shrunk("emoji"))


def _given(prediction: str, **scheduler: Any) -> Architecture:
    """A configuration as --config names it."""
    small = shrunk("sdxl")
    return replace(small, scheduler={**small.scheduler, "prediction_type": prediction, **scheduler})


V_PRED, ZERO_SNR = {"v_pred": EMPTY}, {"v_pred": EMPTY, "ztsnr": EMPTY}


@pytest.mark.parametrize(
    ("marks", "metadata", "given", "reason"),
    [
        (
            V_PRED,
            {},
            _given("epsilon"),
            "marked as predicting v_prediction, .* says epsilon; .*--prediction v_pred",
        ),
        ({}, {"modelspec.prediction_type": "v"}, _given("epsilon"), "marked as predicting v_prediction"),
        (
            {},
            {"modelspec.prediction_type": "epsilon"},
            _given("v_prediction"),
            "marked as predicting epsilon",
        ),
        (ZERO_SNR, {}, _given("v_prediction"), "zero terminal SNR .*; set rescale_betas_zero_snr to true"),
        ({"edm_mean": torch.zeros(4)}, {}, _given("epsilon"), "was trained with EDM preconditioning"),
    ],
)
def test_configuration_that_contradicts_the_file_is_refused(
    marks: dict[str, Tensor], metadata: dict[str, str], given: Architecture, reason: str, tmp_path: Path
) -> None:
    path = _file(tmp_path, {SDXL: torch.zeros(1), **marks}, metadata)
    with open_tensors(path) as file, pytest.raises(ModelFileError, match=reason):
        architecture_of(file, given)


@pytest.mark.parametrize(
    ("marks", "given", "prediction"),
    [
        (V_PRED, _given("v_prediction"), None),
        (ZERO_SNR, _given("v_prediction", rescale_betas_zero_snr=True), None),
        ({}, _given("v_prediction"), None),
        (V_PRED, _given("epsilon"), "v_prediction"),
        (V_PRED, _given("epsilon"), "epsilon"),
    ],
)
def test_configuration_holds_where_nothing_contradicts_it_or_the_user_decides(
    marks: dict[str, Tensor], given: Architecture, prediction: str | None, tmp_path: Path
) -> None:
    with open_tensors(_file(tmp_path, {SDXL: torch.zeros(1), **marks})) as file:
        assert architecture_of(file, given, prediction) == given


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("SDXL Turbo", SamplingDefaults(4, 1.0, "euler", "trailing")),
        ("dreamshaperXL_lightning", SamplingDefaults(4, 1.0, "euler", "trailing")),
        ("My style LCM v2", SamplingDefaults(4, 1.0, "lcm", "leading")),
        ("Turbocharged cars", SamplingDefaults()),
        ("", SamplingDefaults()),
    ],
)
def test_title_tells_a_model_of_few_steps(title: str, expected: SamplingDefaults, tmp_path: Path) -> None:
    """A single file has no scheduler; trainers leave its title in the metadata."""
    path = _file(tmp_path, {SDXL: torch.zeros(1)}, {"modelspec.title": title})
    assert sampling_defaults(_architecture(path)) == expected
