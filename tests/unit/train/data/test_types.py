"""Batches: pictures travel as bytes and become the same numbers wherever they are used."""

from pathlib import Path

import numpy as np
import torch

from calotype.train.data.types import Batch, as_numbers
from tests.unit.train.data.specimens import feed_of, fill_folder, part


def test_every_byte_becomes_the_nearest_number_that_numpy_finds() -> None:
    every = np.arange(256, dtype=np.uint8)
    wanted = every.astype(np.float32) / np.float32(127.5) - np.float32(1)
    found = as_numbers(torch.from_numpy(every))
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy().view(np.uint32), wanted.view(np.uint32))


def test_pictures_travel_as_bytes_and_are_numbers_where_they_are_used(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    with feed_of(part("folder", tmp_path, shuffle=False)) as feed:
        sent = next(feed)
    # Nobody can train on bytes by mistake: there are no pixels before the batch is moved.
    assert sent.pixels is None
    assert sent.pixel_bytes is not None
    assert sent.pixel_bytes.dtype == torch.uint8
    assert sent.pixel_bytes[:, :, 3, 5].tolist() == [[number, 0, 77] for number in range(4)]
    used = sent.to("cpu")
    assert used.pixel_bytes is None
    assert used.pixels is not None
    assert torch.equal(used.pixels, as_numbers(sent.pixel_bytes))
    assert used.to("cpu").pixels is used.pixels


def test_numbers_stay_what_they_are() -> None:
    pixels = torch.rand(1, 3, 2, 2) * 2 - 1
    batch = Batch(captions=("a",), keys=("a",), positions=(0,), pixels=pixels)
    assert batch.to("cpu").pixels is pixels
