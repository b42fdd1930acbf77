"""What nodes do with batches of latents, and the noise that each picture keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from calotype.core.errors import RequestError
from calotype.models import catalogue
from calotype.workflow.nodes.impl import latents as work
from calotype.workflow.nodes.impl.comfy_noise import initial_noise, later_noise

CONTEXT: Any = None


def _latent(batch: int = 3, height: int = 6, width: int = 4, **others: Any) -> work.Latent:
    numbers = torch.Generator().manual_seed(7)
    return {"samples": torch.randn(batch, 4, height, width, generator=numbers), **others}


def test_an_empty_latent_has_the_size_asked_for() -> None:
    (made,) = work.empty(CONTEXT, width=200, height=120, batch_size=3)
    assert made["samples"].shape == (3, 4, 15, 25)
    assert not made["samples"].any()


def test_an_empty_latent_takes_the_form_of_the_model_it_meets() -> None:
    """The embedded model's latent pixels have 4 pixels a side; nobody knew when the size was asked for."""
    (made,) = work.empty(CONTEXT, width=128, height=96)
    fitted = work.for_model(made, catalogue.architecture("emoji"))
    assert fitted["samples"].shape == (1, 4, 24, 32)
    assert work.for_model(fitted, catalogue.architecture("emoji")) is fitted


def test_a_picture_of_another_kind_of_latents_is_refused() -> None:
    with pytest.raises(RequestError, match=r"8×8 pixels each.*works on 4 and 4×4; encode with the VAE"):
        work.for_model(_latent(), catalogue.architecture("emoji"))


def test_one_stream_makes_the_noise_of_a_batch() -> None:
    expected = torch.randn(3, 4, 6, 4, generator=torch.Generator().manual_seed(11))
    assert torch.equal(initial_noise((3, 4, 6, 4), 11), expected)


def test_a_part_of_a_batch_keeps_the_noise_it_had() -> None:
    (part,) = work.from_batch(CONTEXT, _latent(5), batch_index=2, length=2)
    assert part["batch_index"] == [2, 3]
    whole = initial_noise((5, 4, 6, 4), 11)
    assert torch.equal(initial_noise((2, 4, 6, 4), 11, part["batch_index"]), whole[2:4])
    (again,) = work.from_batch(CONTEXT, part, batch_index=1, length=9)
    assert again["batch_index"] == [3]
    assert torch.equal(again["samples"], _latent(5)["samples"][3:4])


def test_samplers_draw_from_a_stream_of_their_own() -> None:
    draw = later_noise((1, 4, 2, 2), 2**64 - 1, torch.device("cpu"))
    numbers = torch.Generator().manual_seed(0)
    for _ in range(2):
        assert torch.equal(draw(), torch.randn(1, 4, 2, 2, generator=numbers))


def test_a_part_of_a_batch_has_its_own_masks() -> None:
    masks = torch.rand(2, 1, 48, 32)
    (part,) = work.from_batch(CONTEXT, _latent(4, noise_mask=masks), batch_index=1, length=2)
    assert torch.equal(part["noise_mask"], masks[[1, 0]])


def test_repeated_batches_have_noise_of_their_own() -> None:
    (made,) = work.repeated(CONTEXT, _latent(2, batch_index=[3, 5]), amount=3)
    assert made["batch_index"] == [3, 5, 6, 8, 9, 11]
    assert torch.equal(made["samples"], torch.cat([_latent(2)["samples"]] * 3))
    (made,) = work.repeated(CONTEXT, _latent(2, noise_mask=torch.rand(2, 1, 4, 4)), amount=2)
    assert made["noise_mask"].shape == (4, 1, 4, 4)
    assert "batch_index" not in made


def test_two_batches_as_one_are_of_the_first_ones_size() -> None:
    one, other = _latent(2), _latent(3, height=8, width=8, batch_index=[4, 5, 6])
    (made,) = work.batched(CONTEXT, one, other)
    assert made["samples"].shape == (5, 4, 6, 4)
    assert made["batch_index"] == [0, 1, 4, 5, 6]


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [(128, 256, (32, 16)), (0, 96, (12, 8)), (96, 0, (18, 12)), (16, 16, (8, 8))],
)
def test_upscale_counts_in_pixels_and_a_side_of_none_follows(
    width: int, height: int, size: tuple[int, int]
) -> None:
    (made,) = work.upscaled(CONTEXT, _latent(), "bilinear", width, height, "disabled")
    assert tuple(made["samples"].shape[-2:]) == size


def test_upscale_knows_how_many_pixels_a_latent_pixel_has() -> None:
    (made,) = work.upscaled(CONTEXT, _latent(factor=4), "bislerp", 128, 64, "disabled")
    assert tuple(made["samples"].shape[-2:]) == (16, 32)


def test_upscale_to_nothing_changes_nothing() -> None:
    latent = _latent()
    assert work.upscaled(CONTEXT, latent, "area", 0, 0, "disabled")[0] is latent
    (made,) = work.upscaled_by(CONTEXT, latent, "nearest-exact", 1.5)
    assert tuple(made["samples"].shape[-2:]) == (9, 6)


def test_flips_and_turns() -> None:
    samples = _latent()["samples"]
    flip, turn = work.flipped, work.rotated
    assert torch.equal(
        flip(CONTEXT, _latent(), "x-axis: vertically")[0]["samples"], samples[:, :, range(5, -1, -1)]
    )
    mirrored = flip(CONTEXT, _latent(), "y-axis: horizontally")[0]["samples"]
    assert torch.equal(mirrored, samples[..., [3, 2, 1, 0]])
    # The upper left corner goes to the upper right: clockwise.
    assert torch.equal(turn(CONTEXT, _latent(), "90 degrees")[0]["samples"][..., 0, -1], samples[..., 0, 0])
    assert torch.equal(turn(CONTEXT, _latent(), "180 degrees")[0]["samples"][..., -1, -1], samples[..., 0, 0])
    assert torch.equal(turn(CONTEXT, _latent(), "none")[0]["samples"], samples)


def _slow_composite(below: Tensor, above: Tensor, x: int, y: int, feather: int) -> Tensor:
    made = below.clone()
    for row in range(min(above.shape[2], below.shape[2] - y)):
        for column in range(min(above.shape[3], below.shape[3] - x)):
            height = min(above.shape[2], below.shape[2] - y)
            width = min(above.shape[3], below.shape[3] - x)
            share = 1.0
            for place, inner in (
                (row, y > 0),
                (height - 1 - row, y + height < below.shape[2]),
                (column, x > 0),
                (width - 1 - column, x + width < below.shape[3]),
            ):
                if inner and place < feather:
                    share *= (place + 1) / feather
            old, new = below[:, :, y + row, x + column], above[:, :, row, column]
            made[:, :, y + row, x + column] = new * share + old * (1 - share)
    return made


@pytest.mark.parametrize(("x", "y", "feather"), [(0, 0, 0), (16, 24, 0), (16, 8, 24), (0, 40, 16)])
def test_composite_is_what_the_slow_one_makes(x: int, y: int, feather: int) -> None:
    below, above = _latent(1, 12, 10), _latent(1, 8, 7)
    above["samples"] += 3
    (made,) = work.composited(CONTEXT, below, above, x, y, feather)
    expected = _slow_composite(below["samples"], above["samples"], x // 8, y // 8, feather // 8)
    torch.testing.assert_close(made["samples"], expected)
    assert not torch.equal(made["samples"], below["samples"])
