"""What a caller of `Engine.generate` sees: steps, previews, cancelling, records, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import calotype
from calotype.core.errors import (
    CancelledError,
    DoesNotFitError,
    ModelFileError,
    NotFoundError,
    RequestError,
)
from calotype.core.progress import CancelToken
from calotype.engine import vae
from calotype.engine.engine import Engine, Step
from calotype.engine.load import load
from calotype.engine.vae import NotAnImageError
from calotype.models.lora import LoraMerger
from calotype.spec.constants import SAMPLERS
from calotype.spec.generate_request import GenerateRequest
from tests.engines import difference, mean_difference, small_engine, with_scheduler, with_unet
from tests.small_models import shrunk, shrunk_folder

SIZE: dict[str, Any] = {"width": 32, "height": 32}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_callback_counts_steps_not_evaluations(engine: Engine, sampler: str) -> None:
    seen: list[Step] = []
    engine.generate("an apple", width=16, height=16, sampler=sampler, steps=4, on_step=seen.append)
    assert [(step.done, step.total) for step in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_callback_says_which_batch_it_is(engine: Engine) -> None:
    seen: list[Step] = []
    engine.generate("an apple", width=16, height=16, steps=2, count=3, batch_size=2, on_step=seen.append)
    assert [(step.batch, step.num_batches, step.done) for step in seen] == [
        (0, 2, 1),
        (0, 2, 2),
        (1, 2, 1),
        (1, 2, 2),
    ]


def test_every_step_can_be_previewed(engine: Engine) -> None:
    shown: list[list[Image.Image]] = []
    engine.generate(
        "an apple", width=64, height=48, steps=3, count=2, on_step=lambda step: shown.append(step.preview())
    )
    assert [[image.size for image in images] for images in shown] == [[(16, 12)] * 2] * 3
    assert difference(shown[2][0], shown[2][1]) > 10


def test_cancelling_stops_between_steps_and_the_engine_goes_on(engine: Engine) -> None:
    expected = engine.generate("an apple", **SIZE, steps=3).images[0]
    token, seen = CancelToken(), 0

    def cancel_at_two(step: Step) -> None:
        nonlocal seen
        seen = step.done
        if step.done == 2:
            token.cancel()

    with pytest.raises(CancelledError):
        engine.generate("an apple", **SIZE, steps=5, on_step=cancel_at_two, cancel=token)
    assert seen == 2
    assert difference(engine.generate("an apple", **SIZE, steps=3).images[0], expected) == 0


def test_a_token_cancelled_before_stops_before_the_first_step(engine: Engine) -> None:
    token = CancelToken()
    token.cancel()
    seen: list[Step] = []
    with pytest.raises(CancelledError):
        engine.generate("an apple", **SIZE, on_step=seen.append, cancel=token)
    assert seen == []


@pytest.mark.parametrize(("width", "height"), [(72, 56), (16, 16), (24, 88)])
@pytest.mark.parametrize("name", ["emoji", "sd15"])
def test_sizes_need_only_be_multiples_of_eight(name: str, width: int, height: int, request: Any) -> None:
    chosen: Engine = request.getfixturevalue("engine" if name == "emoji" else "sd15")
    image = chosen.generate("an apple", width=width, height=height, steps=1).images[0]
    assert image.size == (width, height)


@pytest.fixture(scope="module")
def sd15() -> Engine:
    return small_engine("sd15")


def test_a_size_not_given_is_the_models_own(sd15: Engine) -> None:
    assert sd15.generate("an apple", steps=1).images[0].size == (64, 64)


def test_tiles_are_close_to_the_whole(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As close as a decoder of random weights allows: much closer than another picture is."""
    monkeypatch.setattr(vae, "TILE_PIXELS", 96)
    knobs: dict[str, Any] = {"width": 128, "height": 88, "steps": 2}
    whole = engine.generate("an apple", **knobs, tile_vae=False, count=2).images
    tiled = engine.generate("an apple", **knobs, tile_vae=True)
    assert tiled.images[0].size == (128, 88)
    assert 0 < mean_difference(tiled.images[0], whole[0]) < mean_difference(whole[0], whole[1]) / 4
    assert tiled.records[0].request["tile_vae"] is True


def test_the_record_makes_the_picture_again(engine: Engine) -> None:
    made = engine.generate(
        "an apple 🍎", **SIZE, steps=2, count=2, seed=5, sampler="euler_ancestral", cfg=3.0
    )
    record = made.records[1]
    assert record.request["seed"] == 6
    assert record.request["count"] == 1
    assert difference(engine.generate(record.generate_request()).images[0], made.images[1]) <= 1
    assert record.calotype == calotype.__version__
    assert record.model == engine.model.identity
    assert (record.preset, record.precision, record.device) == ("baseline", "fp32", "cpu")
    assert record.versions["torch"] == torch.__version__
    # Nothing is left to defaults, which may change.
    request = record.generate_request()
    assert (request.width, request.height, request.strength, request.tile_vae) == (32, 32, 1.0, False)


def test_a_request_and_its_knobs_can_be_mixed(engine: Engine) -> None:
    request = GenerateRequest.parse({"prompt": "an apple", **SIZE, "steps": 2})
    made = engine.generate(request, seed=7)
    assert made.records[0].request["seed"] == 7
    assert made.records[0].request["steps"] == 2


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"eta": 0.5, "sampler": "euler"}, "eta: sampler 'euler' has no eta"),
        ({"clip_skip": 2}, "clip_skip: 2 is too large; this model's text encoders can skip at most 1 layers"),
        ({"micro": {"crop_top_left": (1, 0)}}, "micro: .* does not read sizes and crops"),
        ({"schedule": "simple", "steps": 1000, "strength": 0.5}, "steps: schedule 'simple' has at most 1000"),
        ({"batch_size": 0}, "batch_size: 0 is out of range"),
        ({"width": 513}, "width: 513 is not a multiple of 8"),
    ],
)
def test_what_the_model_cannot_do_is_refused(engine: Engine, knobs: dict[str, Any], says: str) -> None:
    image = Image.new("RGB", (16, 16)) if "strength" in knobs else None
    with pytest.raises(RequestError, match=says):
        engine.generate("an apple", image=image, **{**SIZE, **knobs})


def test_all_that_the_model_cannot_do_is_said_at_once(engine: Engine) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate("an apple", **SIZE, eta=0.5, clip_skip=5, micro={"target_size": [8, 8]})
    assert [problem.field for problem in caught.value.problems] == ["eta", "clip_skip", "micro"]


def test_a_setting_that_is_ignored_warns(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.generate("an apple", **SIZE, steps=1, cfg=1.0, negative_prompt="dark")
    assert "negative_prompt has no effect at cfg 1" in caplog.text
    engine.generate("an apple", **SIZE, steps=1, image=Image.new("RGB", (32, 32)), strength=1.0)
    assert "the image has no effect at strength 1" in caplog.text


def test_numbers_that_run_away_are_an_error_not_a_black_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = small_engine("emoji")
    broken.model.unet.conv_out.bias.fill_(torch.nan)
    with pytest.raises(NotAnImageError, match=r"NaN or infinity.*Use bf16 or fp32"):
        broken.generate("an apple", **SIZE, steps=1)


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "GPU memory"),
        (RuntimeError("CUDA error: out of memory"), "GPU memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), "GPU memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), "main memory"),
    ],
)
def test_running_out_of_memory_fails_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise error

    expected = engine.generate("an apple", **SIZE, steps=1).images[0]
    with monkeypatch.context() as patched:
        patched.setattr(engine.model.unet, "forward", full)
        with pytest.raises(DoesNotFitError, match=f"32×32 ran out of {place}"):
            engine.generate("an apple", **SIZE, steps=1)
    assert difference(engine.generate("an apple", **SIZE, steps=1).images[0], expected) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prediction_type": "flow"}, "prediction_type is 'flow'; known: epsilon, v_prediction"),
        ({"beta_schedule": "sigmoid"}, "its scheduler cannot be used: beta schedule 'sigmoid' is unknown"),
        ({"beta_end": "much"}, "its scheduler cannot be used"),
        ({"beta_end": 1.0}, "its scheduler cannot be used: betas lie between 0 and 1, not from .* to 1.0"),
        ({"num_train_timesteps": 1}, "its scheduler cannot be used: num_train_timesteps is 1, not from 2"),
        ({"trained_betas": [0.1, 0.2]}, "trained_betas, which are not supported"),
        ({"_class_name": "EDMDPMSolverMultistepScheduler"}, "is EDMDPM.*, which is not supported"),
        ({"_class_name": "FlowMatchEulerDiscreteScheduler"}, "is FlowMatch.*, which is not supported"),
    ],
)
def test_a_model_that_cannot_be_run_is_refused_when_loaded(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelFileError, match=says):
        small_engine(architecture=with_scheduler(shrunk("emoji"), **change))


def test_a_unet_with_unknown_inputs_is_refused_when_loaded() -> None:
    with pytest.raises(ModelFileError, match=r"its UNet reads 8 channels; 4 .* and 9 .* are known"):
        small_engine(architecture=with_unet(shrunk("emoji"), in_channels=8))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"time_cond_proj_dim": 16}, r"the guidance scale, .* \(time_cond_proj_dim\)"),
        ({"num_class_embeds": 4}, r"a class \(num_class_embeds\), which is not supported"),
        ({"addition_embed_type": "text", "encoder_hid_dim": 32}, "'text' beside the prompt"),
    ],
)
@pytest.mark.parametrize("preset", ["baseline", "fast"])
def test_a_unet_that_reads_what_nobody_gives_it_is_refused(
    preset: str, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ModelFileError, match=says):
        small_engine(architecture=with_unet(shrunk("emoji"), **change), preset=preset)


def test_load_goes_from_a_name_to_an_engine(tmp_path: Path) -> None:
    folder = shrunk_folder(tmp_path, "emoji", seed=3)
    loaded = load(str(folder), device="cpu", precision="bf16", models_folder=str(tmp_path))
    assert loaded.model.dtype == torch.bfloat16
    assert not loaded.model.identity.random
    with pytest.raises(NotFoundError, match="no preset 'basline'; did you mean 'baseline'"):
        load(str(folder), device="cpu", preset="basline")


def test_the_adapter_stack_is_the_only_one_to_change_weights(engine: Engine) -> None:
    """Generating leaves every weight as it was."""
    before = {name: value.clone() for name, value in engine.model.unet.state_dict().items()}
    engine.generate("an apple", **SIZE, steps=1)
    LoraMerger(engine.model.parts()).use([])
    assert all(torch.equal(value, before[name]) for name, value in engine.model.unet.state_dict().items())
