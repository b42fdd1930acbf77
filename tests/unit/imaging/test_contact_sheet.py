"""Contact sheets: labels keep to their place, and a sheet stays a file that opens anywhere."""

import numpy as np
import pytest
from PIL import Image

from calotype.imaging.contact_sheet import MAX_SIDE, Axis, contact_sheet

LONG = "a house with garden, noto style, on a red background"
RED = (200, 0, 0)


def row_of(number: int, side: int) -> list[list[Image.Image]]:
    return [[Image.new("RGB", (side, side), RED) for _ in range(number)]]


@pytest.mark.parametrize("label", [LONG, "passes:own_forward+channels_last+fused_norms+fp8"])
def test_labels_of_columns_are_wrapped_between_the_columns(label: str) -> None:
    sheet = contact_sheet(row_of(2, 128), Axis("prompt", (label, label)), None, "")
    pixels = np.asarray(sheet).astype(int)
    red = (pixels == RED).all(axis=2)
    top = int(red.any(axis=1).argmax())
    between = int((~red[top, 20:]).argmax()) + 20  # the first column after the first picture
    assert (pixels[:top, between] == 255).all(), "no label runs into its neighbour"
    assert (pixels[:top] < 128).any(), "there are labels"


def test_a_label_ends_where_it_would_be_higher_than_a_picture() -> None:
    down = Axis("prompt", (LONG * 20,))
    short, long = (contact_sheet(row_of(1, 64), Axis("seed", (1,)), axis, "") for axis in (None, down))
    assert long.height == short.height
    assert long.width < short.width + 3 * 64


def test_many_large_pictures_are_made_smaller() -> None:
    sheet = contact_sheet(row_of(16, 1024), Axis("seed", tuple(range(16))), None, "")
    assert MAX_SIDE < sheet.width < MAX_SIDE * 1.05
    assert sheet.height < 1024
