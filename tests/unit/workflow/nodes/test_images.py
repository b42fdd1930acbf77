"""Pictures and masks: read with what they leave out, changed pixel by pixel, written to the byte."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from calotype.core.errors import RequestError
from calotype.engine.vae import NotAnImageError
from calotype.workflow.nodes.impl import masks
from tests.workflows import Host, as_png


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(Path("/nonexistent"))


def _noise(*shape: int, seed: int = 3) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def _picture(mode: str, seed: int = 1) -> Image.Image:
    channels = len(Image.new(mode, (1, 1)).getbands())
    numbers = np.random.default_rng(seed).integers(0, 256, (20, 30, channels), dtype=np.uint8)
    return Image.fromarray(numbers.squeeze(-1) if channels == 1 else numbers, mode)


def test_what_is_transparent_is_masked(host: Host) -> None:
    picture = _picture("RGBA")
    host.inputs["a.png"] = as_png(picture)
    image, mask = host.node("LoadImage", image="a.png")
    values = torch.from_numpy(np.asarray(picture).astype(np.float32) / 255)
    assert torch.equal(image[0], values[..., :3])
    assert torch.equal(mask[0], 1 - values[..., 3])
    for place, channel in enumerate(("red", "green", "blue")):
        found = host.node("LoadImageMask", image="a.png", channel=channel)
        assert torch.equal(found[0], values[..., place])
    assert torch.equal(host.node("LoadImageMask", image="a.png", channel="alpha")[0], 1 - values[..., 3])


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_picture_without_transparency_masks_nothing(host: Host, mode: str) -> None:
    host.inputs["b.png"] = as_png(_picture(mode))
    image, mask = host.node("LoadImage", image="b.png")
    assert image.shape == (1, 20, 30, 3)
    assert mask.shape == (1, 64, 64)
    assert not mask.any()
    assert not host.node("LoadImageMask", image="b.png", channel="alpha").any()


def test_sixteen_bits_are_scaled_and_not_cut_off(host: Host) -> None:
    grey = Image.fromarray(np.linspace(0, 65535, 600).reshape(20, 30).astype(np.uint16))
    host.inputs["c.png"] = as_png(grey)
    image, _ = host.node("LoadImage", image="c.png")
    expected = torch.linspace(0, 1, 600).reshape(20, 30)
    torch.testing.assert_close(image[0, ..., 0], expected, atol=1 / 255, rtol=0)


def test_what_is_read_is_written_back_to_the_byte(host: Host) -> None:
    every = Image.fromarray(np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3))
    host.inputs["d.png"] = as_png(every)
    image, _ = host.node("LoadImage", image="d.png")
    host.saved.clear()
    host.node("SaveImage", images=torch.cat([image, image]), filename_prefix="x")
    assert [picture.tobytes() for picture in host.saved] == [every.tobytes()] * 2


def test_nan_is_refused_instead_of_shown_as_black(host: Host) -> None:
    with pytest.raises(NotAnImageError, match="NaN"):
        host.node("PreviewImage", images=torch.full((1, 4, 4, 3), torch.nan))


def test_a_side_of_none_follows_the_other(host: Host) -> None:
    image = _noise(1, 20, 30, 3)
    scaled = host.node("ImageScale", image=image, upscale_method="bilinear", width=15, height=0)
    assert scaled.shape == (1, 10, 15, 3)
    assert host.node("ImageScale", image=image, upscale_method="area", width=0, height=0) is image
    made = host.node("ImageScaleBy", image=image, upscale_method="lanczos", scale_by=1.5)
    assert made.shape == (1, 30, 45, 3)


def test_two_batches_as_one_are_of_the_first_ones_size(host: Host) -> None:
    made = host.node("ImageBatch", image1=_noise(2, 20, 30, 3), image2=_noise(1, 40, 40, 3))
    assert made.shape == (3, 20, 30, 3)
    assert torch.equal(host.node("ImageInvert", image=made), 1 - made)


def _slow_soft_light(a: float, b: float) -> float:
    """https://www.w3.org/TR/compositing-1/#blendingsoftlight"""
    if b <= 0.5:
        return a - (1 - 2 * b) * a * (1 - a)
    d = ((16 * a - 12) * a + 4) * a if a <= 0.25 else a**0.5
    return a + (2 * b - 1) * (d - a)


@pytest.mark.parametrize(
    ("mode", "slow"),
    [
        ("normal", lambda _, b: b),
        ("multiply", lambda a, b: a * b),
        ("screen", lambda a, b: a + b - a * b),
        ("overlay", lambda a, b: 2 * a * b if a <= 0.5 else 1 - 2 * (1 - a) * (1 - b)),
        ("soft_light", _slow_soft_light),
        ("difference", lambda a, b: a - b),
    ],
)
def test_blends_are_their_formulas(host: Host, mode: str, slow: Any) -> None:
    one, other = _noise(1, 5, 6, 3), _noise(1, 5, 6, 3, seed=4)
    made = host.node("ImageBlend", image1=one, image2=other, blend_factor=0.3, blend_mode=mode)
    pairs = zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    expected = [min(max(a * 0.7 + slow(a, b) * 0.3, 0), 1) for a, b in pairs]
    torch.testing.assert_close(made.flatten(), torch.tensor(expected))


def test_crop_begins_inside(host: Host) -> None:
    image = _noise(1, 20, 30, 3)
    made = host.node("ImageCrop", image=image, width=8, height=9, x=4, y=5)
    assert torch.equal(made, image[:, 5:14, 4:12])
    assert host.node("ImageCrop", image=image, width=8, height=9, x=500, y=500).shape == (1, 1, 1, 3)


def _slow_feather(height: int, width: int, sides: dict[str, int], feathering: int) -> Tensor:
    made = torch.zeros(height, width)
    for y in range(height):
        for x in range(width):
            distances = {"top": y, "bottom": height - y, "left": x, "right": width - x}
            near = min((d for side, d in distances.items() if sides[side]), default=height + width)
            if near < feathering:
                made[y, x] = ((feathering - near) / feathering) ** 2
    return made


@pytest.mark.parametrize("sides", [(8, 0, 16, 0), (0, 8, 0, 0), (8, 8, 8, 8), (0, 0, 0, 0)], ids=str)
def test_outpainting_makes_room_and_masks_it(host: Host, sides: tuple[int, int, int, int]) -> None:
    image = _noise(2, 20, 30, 3)
    named = dict(zip(("left", "top", "right", "bottom"), sides, strict=True))
    made, mask = host.node("ImagePadForOutpaint", image=image, feathering=6, **named)
    left, top, right, bottom = sides
    assert made.shape == (2, 20 + top + bottom, 30 + left + right, 3)
    inside = (slice(top, top + 20), slice(left, left + 30))
    assert torch.equal(made[:, inside[0], inside[1]], image)
    torch.testing.assert_close(mask[0][inside], _slow_feather(20, 30, named, 6))
    mask[0][inside] = 1
    assert mask.all()
    assert made.sum() == pytest.approx(float(image.sum()) + 0.5 * (made.numel() - image.numel()), rel=1e-5)


@pytest.mark.parametrize("tapered", [True, False])
@pytest.mark.parametrize("expand", [3, -2, 0])
def test_masks_grow_as_scipy_grows_them(host: Host, tapered: bool, expand: int) -> None:
    mask = (_noise(2, 17, 23) > 0.8).float() * _noise(2, 17, 23, seed=9)
    corner = 0 if tapered else 1
    around = np.array([[corner, 1, corner], [1, 1, 1], [corner, 1, corner]])
    expected = mask.numpy().copy()
    change = ndimage.grey_dilation if expand > 0 else ndimage.grey_erosion
    for _ in range(abs(expand)):
        expected = np.stack([change(one, footprint=around) for one in expected])
    made = host.node("GrowMask", mask=mask, expand=expand, tapered_corners=tapered)
    assert np.array_equal(made.numpy(), expected)


def test_growing_beyond_the_picture_ends_and_can_be_stopped_meanwhile(host: Host) -> None:
    mask = torch.zeros(1, 40, 30)
    mask[0, 0, 0] = 1
    grown = host.node("GrowMask", mask=mask, expand=16384, tapered_corners=True)
    assert grown.all()
    context: Any = host
    steps = list(masks.grown(context, mask, 16384, tapered_corners=True))
    assert len(steps) > 1
    assert {step.maximum for step in steps} == {70}


def test_a_file_of_very_many_frames_is_refused_before_they_are_read(host: Host) -> None:
    file = BytesIO()
    frames = [Image.new("L", (1024, 1024), number) for number in range(80)]
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    host.inputs["many.png"] = file.getvalue()
    with pytest.raises(RequestError, match="80 frames of 1024×1024, the limit is 67108864 pixels in all"):
        host.node("LoadImage", image="many.png")


def test_masks_to_images_and_back(host: Host) -> None:
    mask = host.node("SolidMask", value=0.25, width=30, height=20)
    assert mask.shape == (1, 20, 30)
    inverted = host.node("InvertMask", mask=mask)
    assert torch.equal(inverted, torch.full((1, 20, 30), 0.75))
    image = host.node("MaskToImage", mask=inverted)
    assert image.shape == (1, 20, 30, 3)
    assert torch.equal(host.node("ImageToMask", image=image, channel="green"), inverted)
