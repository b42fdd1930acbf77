"""Image to image and inpainting, on the small model's own terms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs
from calotype.engine.img2img import init_latents
from calotype.engine.vae import Vae, to_pixels
from calotype.sampling import NoiseStream
from tests.engines import begun, difference, mean_difference, small_engine, with_unet
from tests.small_models import shrunk


def photo(width: int = 48, height: int = 32) -> Image.Image:
    """Smooth, with some grain."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / 9), np.cos(y / 7), np.sin((x + y) / 11)], axis=-1) * 90 + 128
    grain = np.random.default_rng(0).normal(0, 8, waves.shape)
    return Image.fromarray((waves + grain).clip(0, 255).astype(np.uint8))


def left_half(width: int = 48, height: int = 32) -> Image.Image:
    """A mask that paints the left half."""
    mask = Image.new("L", (width, height), 0)
    mask.paste(255, (0, 0, width // 2, height))
    return mask


@pytest.fixture(scope="module")
def inpainting() -> Engine:
    return small_engine(architecture=with_unet(shrunk("emoji"), in_channels=9))


def test_the_start_is_the_picture_at_the_schedules_noise(engine: Engine) -> None:
    run, request = begun(engine, {"strength": 0.5, "steps": 4}, [3], image=photo())
    assert (request.width, request.height) == (48, 32)
    query = run.query().query
    clean = Vae(engine.model).encode(to_pixels(photo())[None], tiled=False)
    noise = NoiseStream([3], (4, 8, 12)).initial()
    assert torch.allclose(query.x, clean + noise * query.sigma, atol=1e-5)
    assert run.total_steps == 4


def test_less_strength_stays_nearer_to_the_picture(engine: Engine) -> None:
    def sigma(strength: float) -> float:
        run, _ = begun(engine, {"strength": strength, "steps": 10}, image=photo())
        return run.query().query.sigma

    assert sigma(0.2) < sigma(0.5) < sigma(0.9) < sigma(1.0)


def test_strength_not_given_depends_on_the_mask(engine: Engine) -> None:
    assert begun(engine, {"steps": 1}, image=photo())[1].strength == 0.75
    assert begun(engine, {"steps": 1}, image=photo(), mask=left_half())[1].strength == 1.0
    assert begun(engine, {"steps": 1})[1].strength == 1.0


def test_every_picture_of_a_batch_starts_from_the_image(engine: Engine) -> None:
    together = engine.generate("an apple", image=photo(), strength=0.5, steps=2, count=3).images
    alone = engine.generate("an apple", image=photo(), strength=0.5, steps=2, seed=2).images[0]
    assert difference(together[2], alone) <= 1
    assert difference(together[1], alone) > 5


@pytest.mark.parametrize("strength", [0.5, 1.0])
@pytest.mark.parametrize("sampler", ["euler", "dpmpp_2m", "dpmpp_sde"])
def test_what_is_kept_is_kept_to_the_pixel(engine: Engine, sampler: str, strength: float) -> None:
    made = engine.generate(
        "an apple", image=photo(), mask=left_half(), strength=strength, sampler=sampler, steps=3
    ).images[0]
    right, left = (24, 0, 48, 32), (0, 0, 24, 32)
    assert difference(made.crop(right), photo().crop(right)) == 0
    assert mean_difference(made.crop(left), photo().crop(left)) > 10


def test_a_black_mask_keeps_everything_and_a_white_one_nothing(engine: Engine) -> None:
    black, white = (Image.new("L", (48, 32), value) for value in (0, 255))
    kept = engine.generate("an apple", image=photo(), mask=black, steps=2).images[0]
    assert difference(kept, photo()) == 0
    painted = engine.generate("an apple", image=photo(), mask=white, steps=2).images[0]
    free = engine.generate("an apple", width=48, height=32, steps=2).images[0]
    assert difference(painted, free) <= 1


def test_the_model_sees_the_kept_part_while_it_paints(engine: Engine) -> None:
    """Outside the mask each question holds the known picture at that question's noise."""
    run, _ = begun(engine, {"steps": 3, "sampler": "heun"}, [5], image=photo(), mask=left_half())
    clean = Vae(engine.model).encode(to_pixels(photo())[None], tiled=False)
    noise = NoiseStream([5], (4, 8, 12)).initial()
    while not run.done:
        query = run.query().query
        expected = clean + noise * query.sigma
        assert torch.allclose(query.x[..., 6:], expected[..., 6:], atol=1e-4)
        engine.step([run])
        assert run.latents is not None
        if not run.done:
            assert torch.allclose(run.latents[..., 6:], clean[..., 6:], atol=1e-5)


def test_what_is_painted_depends_on_what_is_kept(engine: Engine) -> None:
    other = photo()
    other.paste((255, 0, 0), (24, 0, 48, 32))
    made = [
        engine.generate("an apple", image=i, mask=left_half(), steps=3).images[0] for i in (photo(), other)
    ]
    left = (0, 0, 16, 32)
    assert difference(made[0].crop(left), made[1].crop(left)) > 3


def test_an_inpainting_unet_reads_mask_and_masked_picture(inpainting: Engine) -> None:
    noise = NoiseStream([1, 2], (4, 8, 12)).initial()
    start = init_latents(inpainting.model, Inputs(photo(), left_half()), noise, tiled=False)
    assert start.keep is None
    assert start.extra_channels is not None
    assert start.extra_channels.shape == (2, 5, 8, 12)
    mask, masked = start.extra_channels[:, :1], start.extra_channels[:, 1:]
    assert torch.equal(mask[0, 0, 0], torch.tensor([1.0] * 6 + [0.0] * 6))
    hidden = to_pixels(photo())[None].clone()
    hidden[..., :24] = 0
    assert torch.allclose(masked[:1], Vae(inpainting.model).encode(hidden, tiled=False), atol=1e-5)


def test_a_thin_stroke_is_painted_too(inpainting: Engine) -> None:
    stroke = Image.new("L", (48, 32), 0)
    stroke.putpixel((20, 9), 255)
    noise = NoiseStream([1], (4, 8, 12)).initial()
    start = init_latents(inpainting.model, Inputs(photo(), stroke), noise, tiled=False)
    assert start.extra_channels is not None
    expected = torch.zeros(8, 12)
    expected[2, 5] = 1
    assert torch.equal(start.extra_channels[0, 0], expected)


def test_an_inpainting_unet_makes_pictures_from_text_alone_too(inpainting: Engine) -> None:
    made = inpainting.generate("an apple", width=48, height=32, steps=2, count=2).images
    assert difference(made[0], made[1]) > 10


def test_an_inpainting_unet_keeps_to_the_pixel_too(inpainting: Engine) -> None:
    made = inpainting.generate("an apple", image=photo(), mask=left_half(), steps=2).images[0]
    right, left = (24, 0, 48, 32), (0, 0, 24, 32)
    assert difference(made.crop(right), photo().crop(right)) == 0
    assert mean_difference(made.crop(left), photo().crop(left)) > 10
