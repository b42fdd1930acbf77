"""A model runs as its own scheduler configuration says, unless a request says otherwise."""

import json
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest

from calotype.engine.engine import Engine
from calotype.engine.load import load
from calotype.spec.generate_request import GenerateRequest
from tests.engines import difference
from tests.small_models import shrunk_folder

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
    "prediction_type": "epsilon",
}
OLD_DDIM = {**BETAS, "_class_name": "DDIMScheduler", "steps_offset": 1, "set_alpha_to_one": False}


def _engine(folder: Path, scheduler: dict[str, Any] | None = None) -> Engine:
    if scheduler is not None:
        (folder / "scheduler/scheduler_config.json").write_text(json.dumps(scheduler))
    return load(str(folder), device="cpu", precision="fp32", preset="baseline")


@pytest.fixture(scope="module")
def turbo(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A folder with the scheduler that stabilityai/sdxl-turbo is published with."""
    return _engine(shrunk_folder(tmp_path_factory.mktemp("turbo"), "sdxl"), TURBO)


def _knobs(request: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(request[name] for name in ("steps", "cfg", "sampler", "schedule"))


def test_turbo_folder_takes_four_steps_without_guidance(turbo: Engine) -> None:
    made = turbo.generate("an apple", seed=1)
    assert _knobs(made.records[0].request) == (4, 1.0, "euler_ancestral", "trailing")
    again = turbo.generate(made.records[0].generate_request())
    assert difference(again.images[0], made.images[0]) <= 1


def test_what_a_request_says_wins(turbo: Engine) -> None:
    said: dict[str, Any] = {"steps": 2, "cfg": 7.5, "sampler": "euler", "schedule": "karras"}
    made = turbo.generate("an apple", seed=1, **said)
    assert _knobs(made.records[0].request) == (2, 7.5, "euler", "karras")


def test_record_of_an_older_version_is_made_again_as_it_was(turbo: Engine) -> None:
    """It holds all values, so another default changes nothing."""
    old = {
        "prompt": "an apple",
        "seed": 1,
        "steps": 2,
        "cfg": 7.5,
        "sampler": "dpmpp_2m",
        "schedule": "karras",
    }
    assert _knobs(turbo.resolve_defaults(GenerateRequest.parse(old)).as_dict()) == (
        2,
        7.5,
        "dpmpp_2m",
        "karras",
    )


def test_folder_of_a_base_model_runs_with_the_usual_defaults(tmp_path: Path) -> None:
    engine = _engine(shrunk_folder(tmp_path, "sd15"))
    resolved = engine.resolve_defaults(GenerateRequest.parse({"prompt": "an apple"}))
    assert _knobs(resolved.as_dict()) == (20, 7.5, "dpmpp_2m", "karras")


def test_noise_levels_are_those_of_the_folders_own_scheduler(tmp_path: Path) -> None:
    folder = shrunk_folder(tmp_path, "sd15")
    engine = _engine(folder, OLD_DDIM)
    resolved = engine.resolve_defaults(GenerateRequest.parse({"prompt": "an apple", "steps": 30}))
    assert (resolved.sampler, resolved.schedule) == ("ddim", "leading")
    scheduler = diffusers.DDIMScheduler.from_pretrained(folder, subfolder="scheduler")
    scheduler.set_timesteps(30)
    alphas = scheduler.alphas_cumprod.double()[scheduler.timesteps].tolist()
    alphas.append(float(scheduler.final_alpha_cumprod))
    expected = np.sqrt([(1 - alpha) / alpha for alpha in alphas])
    np.testing.assert_allclose(engine.sigmas(resolved), expected, rtol=1e-4)
