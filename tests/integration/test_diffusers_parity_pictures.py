"""The same weights, picture, mask and noise give the same result here and in diffusers.

diffusers draws a picture's latents from the autoencoder's distribution, we take its mode; so diffusers is
given the mode. In fp32 on the CPU, final latents within 1e-4 relative.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from calotype.engine.image_inputs import Inputs
from calotype.sampling import NoiseStream
from tests.engines import begun, difference, relative, to_the_end, with_unet
from tests.integration.pipelines import CASES, STEPS, Case, Pair, make_pair, starting_scale, their_picture
from tests.small_models import shrunk

PROMPT, NEGATIVE = "a red apple on a wooden table", "blurry, dark"
CLOSE = 1e-4
FAR = 1e-2


def photo(side: int = 64) -> Image.Image:
    y, x = np.mgrid[0:side, 0:side]
    waves = np.stack([np.sin(x / 9), np.cos(y / 7), np.sin((x + y) / 11)], axis=-1)
    return Image.fromarray((waves * 90 + 128).astype(np.uint8))


def left_part(side: int = 64) -> Image.Image:
    mask = Image.new("L", (side, side), 0)
    mask.paste(255, (0, 0, 40, side))
    return mask


def pixels() -> Tensor:
    return torch.from_numpy(np.asarray(photo()).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1


def mode(pair: Pair, values: Tensor) -> Tensor:
    """The most likely latents of pixels, by diffusers alone."""
    with torch.inference_mode():
        return pair.theirs.vae.encode(values).latent_dist.mode() * pair.theirs.vae.config.scaling_factor


def theirs(pair: Pair, pipeline: Any, case: Case, **arguments: Any) -> Tensor:
    pipeline.scheduler = pair.scheduler(case)
    steps: dict[str, Any] = {"num_inference_steps": 2 * STEPS}
    if case.timesteps is not None:
        steps = {"timesteps": list(case.timesteps)}
    result = pipeline(
        prompt=PROMPT,
        negative_prompt=NEGATIVE,
        guidance_scale=7.5,
        # A generator gives the noise that our seed gives.
        generator=torch.Generator().manual_seed(5),
        output_type="latent",
        **{**steps, **arguments},
    )
    return result.images


def knobs(case: Case, **others: Any) -> dict[str, Any]:
    settings = {"sampler": case.sampler, "schedule": case.schedule, "steps": STEPS, "seed": 5}
    return {"prompt": PROMPT, "negative_prompt": NEGATIVE, "cfg": 7.5, **settings, **others}


def twice_as_fine(case: Case) -> Case:
    """Half the strength runs the second half of a schedule of twice the steps."""
    return replace(case, timesteps=tuple(range(999, 0, -50))) if case.timesteps else case


def from_noise_alone(pair: Pair, case: Case) -> dict[str, Any]:
    """Arguments for a run over the whole schedule."""
    if case.timesteps:
        return {}
    scheduler = pair.scheduler(case)
    scheduler.set_timesteps(STEPS)
    noise = NoiseStream([5], (4, 8, 8)).initial()
    return {"num_inference_steps": STEPS, "latents": noise * starting_scale(scheduler)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_image_to_image(sd15: Pair, case: Case) -> None:
    pipeline = sd15.pipeline("StableDiffusionImg2ImgPipeline")
    expected = theirs(sd15, pipeline, twice_as_fine(case), image=mode(sd15, pixels()), strength=0.5)
    run, request = begun(sd15.ours, knobs(case, strength=0.5), image=photo())
    assert relative(to_the_end(sd15.ours, run), expected) < CLOSE
    image = sd15.ours.finish(run, request, Inputs(photo()))[0]
    assert difference(image, their_picture(sd15, expected)) <= 1


def test_image_to_image_with_sdxl(sdxl: Pair) -> None:
    pipeline = sdxl.pipeline("StableDiffusionXLImg2ImgPipeline")
    expected = theirs(sdxl, pipeline, CASES[0], image=mode(sdxl, pixels()), strength=0.5)
    run, _ = begun(sdxl.ours, knobs(CASES[0], strength=0.5), image=photo())
    assert relative(to_the_end(sdxl.ours, run), expected) < CLOSE


def test_inpainting_with_an_ordinary_model(sd15: Pair) -> None:
    """diffusers puts the kept part back after each step, we before each evaluation: the same for Euler."""
    pipeline = sd15.pipeline("StableDiffusionInpaintPipeline")
    clean = mode(sd15, pixels())
    expected = theirs(
        sd15,
        pipeline,
        CASES[0],
        image=clean,
        masked_image_latents=clean,
        mask_image=left_part(),
        strength=0.5,
        width=64,
        height=64,
    )
    run, _ = begun(sd15.ours, knobs(CASES[0], strength=0.5), image=photo(), mask=left_part())
    latents = to_the_end(sd15.ours, run)
    assert relative(latents, expected) < CLOSE
    assert torch.allclose(latents[..., 5:], clean[..., 5:], atol=1e-5)
    assert relative(latents[..., :5], clean[..., :5]) > FAR


@pytest.fixture(scope="module")
def inpainting(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    architecture = with_unet(shrunk("sd15"), in_channels=9)
    return make_pair(architecture, tmp_path_factory.mktemp("inpainting") / "model")


@pytest.mark.parametrize("strength", [0.5, 1.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_inpainting_with_a_model_that_reads_the_mask(inpainting: Pair, case: Case, strength: float) -> None:
    pipeline = inpainting.pipeline("StableDiffusionInpaintPipeline")
    hidden = pixels()
    hidden[..., :40] = 0
    whole = strength == 1.0
    expected = theirs(
        inpainting,
        pipeline,
        case if whole else twice_as_fine(case),
        image=mode(inpainting, pixels()),
        masked_image_latents=mode(inpainting, hidden),
        mask_image=left_part(),
        strength=strength,
        width=64,
        height=64,
        **(from_noise_alone(inpainting, case) if whole else {}),
    )
    run, _ = begun(inpainting.ours, knobs(case, strength=strength), image=photo(), mask=left_part())
    assert relative(to_the_end(inpainting.ours, run), expected) < CLOSE
    other, _ = begun(inpainting.ours, knobs(case, strength=strength), image=photo())
    assert relative(to_the_end(inpainting.ours, other), expected) > FAR
