"""The same weights, prompt and noise give the same picture here and in diffusers: text to image.

In fp32 on the CPU. Final latents within 1e-4 relative (measured: 1e-6), pixels within 1/255.
"""

from __future__ import annotations

from typing import Any

import pytest

from calotype.engine.image_inputs import Inputs
from tests.engines import begun, difference, latents_of, relative, to_the_end, with_scheduler
from tests.integration.pipelines import CASES, STEPS, Case, Pair, make_pair, their_latents, their_picture
from tests.small_models import shrunk

PROMPT, NEGATIVE = "a red apple on a wooden table, 4k!", "blurry, dark"
CLOSE = 1e-4
FAR = 1e-2
"""How much a setting must change the latents for their equality to mean anything."""


def ours(pair: Pair, case: Case, **knobs: Any) -> Any:
    settings = {"sampler": case.sampler, "schedule": case.schedule, "steps": STEPS, "seed": 5}
    return latents_of(pair.ours, **{"prompt": PROMPT, **settings, **knobs})


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("model", ["sd15", "sd2", "sdxl"])
def test_the_same_latents_and_the_same_picture(
    model: str, case: Case, request: pytest.FixtureRequest
) -> None:
    pair: Pair = request.getfixturevalue(model)
    expected = their_latents(pair, case, prompt=PROMPT, negative_prompt=NEGATIVE, guidance_scale=7.5)
    run, resolved = begun(
        pair.ours,
        {
            "prompt": PROMPT,
            "negative_prompt": NEGATIVE,
            "cfg": 7.5,
            "sampler": case.sampler,
            "schedule": case.schedule,
            "steps": STEPS,
            "seed": 5,
        },
    )
    latents = to_the_end(pair.ours, run)
    assert relative(latents, expected) < CLOSE
    image = pair.ours.finish(run, resolved, Inputs())[0]
    assert difference(image, their_picture(pair, expected)) <= 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_velocity_prediction(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    architecture = with_scheduler(shrunk("sd2-base"), prediction_type="v_prediction")
    pair = make_pair(architecture, tmp_path_factory.mktemp("v") / "model")
    expected = their_latents(pair, case, prompt=PROMPT, negative_prompt=NEGATIVE, guidance_scale=4.0)
    assert relative(ours(pair, case, negative_prompt=NEGATIVE, cfg=4.0), expected) < CLOSE


def test_without_guidance(sd15: Pair) -> None:
    expected = their_latents(sd15, CASES[0], prompt=PROMPT, guidance_scale=1.0)
    assert relative(ours(sd15, CASES[0], cfg=1.0), expected) < CLOSE


def test_other_shapes(sd15: Pair) -> None:
    expected = their_latents(sd15, CASES[0], prompt=PROMPT, guidance_scale=7.5, width=72, height=56)
    assert relative(ours(sd15, CASES[0], width=72, height=56), expected) < CLOSE


@pytest.mark.parametrize("model", ["sd15", "sdxl"])
def test_clip_skip(model: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """diffusers leaves the layers out of the prompt alone; we, like everyone else, out of both prompts."""
    pair: Pair = request.getfixturevalue(model)
    # transformers 5 has no such level any more, and diffusers 0.42 still looks for it here.
    encoder = type(pair.theirs.text_encoder)
    monkeypatch.setattr(encoder, "text_model", property(lambda self: self), raising=False)
    texts: dict[str, Any] = {}
    for prefix, words in (("", PROMPT), ("negative_", NEGATIVE)):
        embeddings = pair.theirs.encode_prompt(
            words, device="cpu", num_images_per_prompt=1, do_classifier_free_guidance=False, clip_skip=1
        )
        texts[f"{prefix}prompt_embeds"] = embeddings[0]
        if model == "sdxl":
            texts[f"{prefix}pooled_prompt_embeds"] = embeddings[2]
    expected = their_latents(pair, CASES[0], **texts, guidance_scale=7.5)
    assert relative(ours(pair, CASES[0], negative_prompt=NEGATIVE, clip_skip=1), expected) < CLOSE
    assert relative(ours(pair, CASES[0], negative_prompt=NEGATIVE), expected) > FAR


def test_clip_skip_of_the_prompt_alone(sd15: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = type(sd15.theirs.text_encoder)
    monkeypatch.setattr(encoder, "text_model", property(lambda self: self), raising=False)
    expected = their_latents(sd15, CASES[0], prompt=PROMPT, guidance_scale=1.0, clip_skip=1)
    assert relative(ours(sd15, CASES[0], cfg=1.0, clip_skip=1), expected) < CLOSE


class TestSdxl:
    """What SDXL alone has."""

    def test_sizes_and_crop(self, sdxl: Pair) -> None:
        expected = their_latents(
            sdxl,
            CASES[0],
            prompt=PROMPT,
            negative_prompt=NEGATIVE,
            guidance_scale=5.0,
            original_size=(1023, 769),
            crops_coords_top_left=(13, 250),
            target_size=(512, 640),
            negative_original_size=(1023, 769),
            negative_crops_coords_top_left=(13, 250),
            negative_target_size=(512, 640),
        )
        micro = {"original_size": [1023, 769], "crop_top_left": [13, 250], "target_size": [512, 640]}
        found = ours(sdxl, CASES[0], negative_prompt=NEGATIVE, cfg=5.0, micro=micro)
        assert relative(found, expected) < CLOSE
        assert relative(ours(sdxl, CASES[0], negative_prompt=NEGATIVE, cfg=5.0), expected) > FAR

    def test_no_negative_prompt_is_zeros(self, sdxl: Pair) -> None:
        expected = their_latents(sdxl, CASES[0], prompt=PROMPT, guidance_scale=5.0)
        assert relative(ours(sdxl, CASES[0], cfg=5.0), expected) < CLOSE

    def test_an_empty_negative_prompt_is_the_empty_text(self, sdxl: Pair) -> None:
        expected = their_latents(sdxl, CASES[0], prompt=PROMPT, negative_prompt="", guidance_scale=5.0)
        assert relative(ours(sdxl, CASES[0], negative_prompt="", cfg=5.0), expected) < CLOSE
        assert relative(ours(sdxl, CASES[0], cfg=5.0), expected) > FAR
