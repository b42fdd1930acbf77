"""What a model runs with where a request does not say: from its scheduler, as its authors published it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from calotype.models import catalogue
from calotype.models.inspect import inspect
from calotype.models.sampling_defaults import SamplingDefaults, sampling_defaults
from tests.small_models import shrunk, shrunk_folder
from tests.unit.models.on_disk import original_tensors

OURS = SamplingDefaults()
EULER = {"_class_name": "EulerDiscreteScheduler"}
BETAS = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
}
TURBO = {
    **BETAS,
    "_class_name": "EulerAncestralDiscreteScheduler",
    "timestep_spacing": "trailing",
    "steps_offset": 1,
}


def _defaults(name: str, scheduler: dict[str, Any]) -> SamplingDefaults:
    return sampling_defaults(replace(catalogue.architecture(name), scheduler=scheduler))


@pytest.mark.parametrize("name", catalogue.names())
def test_base_models_run_with_our_defaults(name: str) -> None:
    architecture = catalogue.architecture(name)
    assert sampling_defaults(architecture) == OURS
    # What a fine-tune of it changes about the noise is no statement about sampling.
    marks = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}
    assert sampling_defaults(replace(architecture, scheduler={**architecture.scheduler, **marks})) == OURS


@pytest.mark.parametrize(
    ("name", "scheduler", "expected"),
    [
        # As stabilityai/sdxl-turbo and stabilityai/sd-turbo have it.
        ("sdxl", TURBO, SamplingDefaults(4, 1.0, "euler_ancestral", "trailing")),
        (
            "sd2-base",
            {**BETAS, **EULER, "timestep_spacing": "trailing"},
            SamplingDefaults(4, 1.0, "euler", "trailing"),
        ),
        # As the card of ByteDance/SDXL-Lightning sets it up.
        (
            "sdxl",
            {**BETAS, **EULER, "timestep_spacing": "trailing", "steps_offset": 1},
            SamplingDefaults(4, 1.0, "euler", "trailing"),
        ),
        ("sd15", {**BETAS, "_class_name": "LCMScheduler"}, SamplingDefaults(4, 1.0, "lcm", "leading")),
        # Trained to start from pure noise, which needs as many steps as ever.
        (
            "sdxl",
            {**BETAS, **EULER, "timestep_spacing": "trailing", "prediction_type": "v_prediction"},
            SamplingDefaults(sampler="euler", schedule="trailing"),
        ),
        (
            "sdxl",
            {**BETAS, **EULER, "timestep_spacing": "trailing", "rescale_betas_zero_snr": True},
            SamplingDefaults(sampler="euler", schedule="trailing"),
        ),
        (
            "sd2-base",
            {**BETAS, "_class_name": "DDIMScheduler", "steps_offset": 1},
            SamplingDefaults(sampler="ddim", schedule="leading"),
        ),
        ("sd15", {**BETAS, **EULER}, SamplingDefaults(sampler="euler", schedule="linspace")),
        (
            "sd15",
            {**BETAS, "_class_name": "UniPCMultistepScheduler", "use_karras_sigmas": True},
            SamplingDefaults(sampler="uni_pc"),
        ),
        ("sdxl", {**BETAS, "_class_name": "DPMSolverMultistepScheduler", "use_karras_sigmas": True}, OURS),
        (
            "sdxl",
            {**BETAS, "_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "sde-dpmsolver++"},
            SamplingDefaults(sampler="dpmpp_2m_sde", schedule="linspace"),
        ),
        ("sdxl", {**BETAS, "_class_name": "SomethingNewScheduler"}, OURS),
    ],
)
def test_scheduler_names_the_defaults(
    name: str, scheduler: dict[str, Any], expected: SamplingDefaults
) -> None:
    assert _defaults(name, scheduler) == expected


def test_inspection_of_a_folder_names_its_sampling_defaults(tmp_path: Path) -> None:
    """The page shows them for a model that is not loaded."""
    turbo = shrunk_folder(tmp_path, "sdxl")
    (turbo / "scheduler" / "scheduler_config.json").write_text(json.dumps(TURBO))
    assert inspect(turbo).sampling == SamplingDefaults(4, 1.0, "euler_ancestral", "trailing")
    assert inspect(shrunk_folder(tmp_path, "sd15")).sampling == OURS


@pytest.mark.parametrize(
    ("title", "expected"),
    [("SD Turbo", SamplingDefaults(4, 1.0, "euler", "trailing")), ("Any", OURS)],
)
def test_inspection_of_a_file_names_its_sampling_defaults(
    title: str, expected: SamplingDefaults, tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    save_file(original_tensors(shrunk("sd15")), file, {"modelspec.title": title})
    assert inspect(file).sampling == expected
