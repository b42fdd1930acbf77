"""Pictures side by side over one or two knobs, with labelled axes. Knows only pictures and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

BACKGROUND, INK, FAINT = (255, 255, 255), (24, 24, 27), (113, 113, 122)
SMALLEST_TEXT, LARGEST_TEXT = 12, 36


@dataclass(frozen=True)
class Axis:
    """One knob and the values it takes along the sheet."""

    knob: str
    values: tuple[object, ...]

    def labels(self) -> list[str]:
        return [str(value) for value in self.values]


def contact_sheet(cells: Sequence[Sequence[Image.Image]], across: Axis, down: Axis | None, caption: str) -> Image.Image:
    """A sheet of `cells[row][column]`; the caption says what all cells share."""
    width, height = (max(image.size[side] for row in cells for image in row) for side in (0, 1))
    size = max(SMALLEST_TEXT, min(LARGEST_TEXT, width // 12))
    font, small = ImageFont.load_default(size), ImageFont.load_default(max(SMALLEST_TEXT, int(size * 0.8)))
    gap = max(4, size // 3)
    row_labels = down.labels() if down else [""]
    left = gap * 2 + (max(int(font.getlength(t)) for t in [*row_labels, down.knob]) if down else 0)
    top = gap * 3 + size * 2
    columns, rows = len(across.values), len(row_labels)
    caption_lines = _wrapped(caption, small, left + columns * (width + gap))
    bottom = gap * 2 + len(caption_lines) * int(small.size * 1.4)
    sheet = Image.new("RGB", (left + columns * (width + gap) + gap, top + rows * (height + gap) + bottom), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((left, gap), across.knob, font=font, fill=FAINT)
    for column, label in enumerate(across.labels()):
        middle = left + column * (width + gap) + width // 2
        draw.text((middle, gap * 2 + size), label, font=font, fill=INK, anchor="ma")
    if down:
        draw.text((gap, gap * 2 + size), down.knob, font=font, fill=FAINT)
    for row, label in enumerate(row_labels):
        y = top + row * (height + gap)
        draw.text((left - gap, y + height // 2), label, font=font, fill=INK, anchor="rm")
        for column, image in enumerate(cells[row]):
            x = left + column * (width + gap)
            sheet.paste(image, (x + (width - image.width) // 2, y + (height - image.height) // 2))
    for line, text in enumerate(caption_lines):
        y = top + rows * (height + gap) + gap + line * int(small.size * 1.4)
        draw.text((gap, y), text, font=small, fill=FAINT)
    return sheet


def _wrapped(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) <= width or not line:
            line = longer
        else:
            lines.append(line)
            line = word
    return [*lines, line] if line else lines
