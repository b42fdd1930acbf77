"""Tiles, colours and glimpses, where the right answer is known beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, interpolate

from calotype.engine import vae as vae_module
from calotype.engine.engine import Engine
from calotype.engine.preview import Preview
from calotype.engine.tiled_vae import TiledVae
from calotype.engine.vae import NotAnImageError, Vae, to_image, to_pixels
from tests.engines import difference, relative


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 40), (9, 8), (17, 33), (64, 3)])
def test_enlarging_in_tiles_is_enlarging(height: int, width: int) -> None:
    picture = random(1, 3, height, width)
    sizes = []

    def enlarge(tile: Tensor) -> Tensor:
        sizes.append(max(tile.shape[-2:]))
        return interpolate(tile, scale_factor=4, mode="nearest")

    found = TiledVae(side=8, in_scale=1, out_scale=4, out_channels=3).apply(enlarge, picture)
    assert torch.allclose(found, interpolate(picture, scale_factor=4, mode="nearest"), atol=1e-6)
    assert max(sizes) <= 8


@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 160), (68, 132)])
def test_shrinking_in_tiles_is_shrinking(height: int, width: int) -> None:
    picture = random(1, 3, height, width)
    tiling = TiledVae(side=8, in_scale=4, out_scale=1, out_channels=3)
    assert torch.allclose(
        tiling.apply(lambda tile: avg_pool2d(tile, 4), picture), avg_pool2d(picture, 4), atol=1e-6
    )


def test_what_differs_at_tile_borders_is_faded_out() -> None:
    """A blur that sees zeros past a tile's border is wrong only there; the seam must not show."""
    kernel = torch.ones(1, 1, 3, 3) / 9
    picture = torch.ones(1, 1, 40, 40)
    found = TiledVae(16, 1, 1, 1).apply(lambda tile: conv2d(tile, kernel, padding=1), picture)
    assert found[..., 1:-1, 1:-1].min() > 0.9
    assert found[..., 1:-1, 1:-1].diff(dim=-1).abs().max() < 0.1


def test_no_tile_is_a_sliver() -> None:
    sizes: list[tuple[int, ...]] = []

    def work(tile: Tensor) -> Tensor:
        sizes.append(tuple(tile.shape[-2:]))
        return tile

    TiledVae(64, 1, 1, 4).apply(work, random(1, 4, 97, 65))
    assert set(sizes) == {(64, 64)}


def test_large_pictures_are_encoded_in_tiles_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae_module, "TILE_PIXELS", 96)
    pixels = random(1, 3, 88, 128)
    whole, tiled = (Vae(engine.model).encode(pixels, tiled=tiled) for tiled in (False, True))
    assert 0 < relative(tiled, whole) < 0.2


def test_encoding_does_not_depend_on_what_was_decoded_before(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vae_module, "TILE_PIXELS", 64)
    one = Vae(engine.model)
    pixels = random(1, 3, 88, 104)
    before = one.encode(pixels, tiled=False)
    one.decode(random(1, 4, 22, 26), tiled=True)
    assert torch.equal(one.encode(pixels, tiled=False), before)


def test_latents_are_scaled_as_the_model_was_trained(sdxl: Engine) -> None:
    vae, one = sdxl.model.vae, Vae(sdxl.model)
    pixels = random(1, 3, 32, 32).clamp(-1, 1)
    with torch.inference_mode():
        expected = vae.encode(pixels).latent_dist.mean * 0.13025
        decoded = vae.decode(expected / 0.13025).sample
    assert torch.allclose(one.encode(pixels, tiled=False), expected, atol=1e-6)
    assert torch.allclose(one.decode(expected, tiled=False), decoded, atol=1e-5)


def test_colours_go_to_numbers_and_back() -> None:
    image = Image.frombytes("RGB", (16, 16), bytes(range(256)) * 3)
    assert difference(to_image(to_pixels(image)), image) == 0
    assert to_image(torch.full((3, 1, 2), 5.0)).getpixel((0, 0)) == (255, 255, 255)
    assert to_image(torch.full((3, 1, 2), -5.0)).size == (2, 1)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_bad_number_is_enough_to_refuse_a_picture(bad: float) -> None:
    pixels = torch.zeros(3, 8, 8)
    pixels[1, 2, 3] = bad
    with pytest.raises(NotAnImageError, match="NaN or infinity"):
        to_image(pixels)


def test_a_preview_finds_the_colours_of_a_decoder_that_is_linear(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixing = random(3, 4) / 6

    def decode(_self: Vae, latents: Tensor, *, tiled: bool) -> Tensor:
        colours = torch.einsum("nchw,kc->nkhw", latents, mixing) + 0.25
        return interpolate(colours, scale_factor=4, mode="nearest")

    monkeypatch.setattr(Vae, "decode", decode)
    latents = random(2, 4, 6, 5)
    previews = Preview(engine.model).images(latents)
    small = decode(Vae(engine.model), latents, tiled=False)[..., ::4, ::4]
    assert max(difference(one, to_image(two)) for one, two in zip(previews, small, strict=True)) <= 1


def test_a_preview_is_fitted_where_the_model_is(engine: Engine) -> None:
    # The nearest there is here to a GPU: what is on another device cannot meet weights on this one.
    elsewhere, places = replace(engine.model, device=torch.device("meta")), []

    def decode(_vae: object, latents: Tensor) -> Tensor:
        places.append(latents.device.type)
        return interpolate(torch.zeros(len(latents), 3, *latents.shape[2:]), scale_factor=4.0)

    Preview(elsewhere, decode).images(random(1, 4, 6, 5))
    assert places == ["meta"]
