"""Contact sheets: a grid of images over one or two settings, with labeled axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from PIL import Image, ImageDraw, ImageFont, ImageOps

BACKGROUND, INK, FAINT = (255, 255, 255), (24, 24, 27), (113, 113, 122)
SMALLEST_TEXT, LARGEST_TEXT = 12, 36
MAX_SIDE = 8192
"""Maximum pixels of all images in a row or column; WebP and viewers fail at about twice that."""
LABEL_SHARE = 1.5
"""Maximum width of row labels before they wrap, relative to the width of an image."""


@dataclass(frozen=True)
class Axis:
    """One setting and its values along the sheet."""

    knob: str
    values: tuple[object, ...]

    def labels(self) -> list[str]:
        return [str(value) for value in self.values]


def contact_sheet(
    cells: Sequence[Sequence[Image.Image]], across: Axis, down: Axis | None, caption: str
) -> Image.Image:
    """Draw a sheet of `cells[row][column]`; the caption shows the settings that all cells share."""
    cells = _scaled_down(cells)
    layout = _Layout(cells, across, down, caption)
    sheet = Image.new("RGB", layout.size, BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    gap, text = layout.gap, layout.text_size
    draw.text((layout.left, gap), across.knob, font=layout.font, fill=FAINT)
    for column, lines in enumerate(layout.above):
        middle = layout.x(column) + layout.cell[0] // 2
        last = layout.top - gap - text
        for line, words in enumerate(reversed(lines)):
            at = (middle, last - line * layout.label_height)
            draw.text(at, words, font=layout.font, fill=INK, anchor="ma")
    if down:
        draw.text((gap, layout.top - gap - text), down.knob, font=layout.font, fill=FAINT)
        for row, lines in enumerate(layout.beside):
            first = layout.y(row) + (layout.cell[1] - (len(lines) - 1) * layout.label_height) // 2
            for line, words in enumerate(lines):
                at = (layout.left - gap, first + line * layout.label_height)
                draw.text(at, words, font=layout.font, fill=INK, anchor="rm")
    for row, images in enumerate(cells):
        for column, image in enumerate(images):
            spare = (layout.cell[0] - image.width) // 2, (layout.cell[1] - image.height) // 2
            sheet.paste(image, (layout.x(column) + spare[0], layout.y(row) + spare[1]))
    for line, words in enumerate(layout.caption_lines):
        y = layout.y(len(cells)) + gap + line * layout.line_height
        draw.text((gap, y), words, font=layout.small, fill=FAINT)
    return sheet


def _scaled_down(cells: Sequence[Sequence[Image.Image]]) -> Sequence[Sequence[Image.Image]]:
    """The images, scaled down if the sheet would exceed MAX_SIDE."""
    most = MAX_SIDE // max(len(cells), *map(len, cells))
    if all(max(image.size) <= most for row in cells for image in row):
        return cells
    return [[ImageOps.contain(image, (most, most)) for image in row] for row in cells]


class _Layout:
    """Positions of all elements on a sheet; the text size grows with the images, within limits."""

    def __init__(
        self, cells: Sequence[Sequence[Image.Image]], across: Axis, down: Axis | None, caption: str
    ) -> None:
        widths, heights = zip(*(image.size for row in cells for image in row), strict=True)
        self.cell = (max(widths), max(heights))
        self.text_size = max(SMALLEST_TEXT, min(LARGEST_TEXT, self.cell[0] // 12))
        self.font = ImageFont.load_default(self.text_size)
        self.small = ImageFont.load_default(max(SMALLEST_TEXT, int(self.text_size * 0.8)))
        self.gap = max(4, self.text_size // 3)
        self.label_height = self.text_size + self.gap
        self.above = [self._label(label, self.cell[0]) for label in across.labels()]
        widest = LABEL_SHARE * self.cell[0]
        self.beside = [self._label(label, widest) for label in down.labels()] if down else []
        labels = [line for lines in self.beside for line in lines] + ([down.knob] if down else [])
        self.left = self.gap * 2 + max((ceil(self.font.getlength(label)) for label in labels), default=0)
        self.top = self.gap * 2 + self.text_size + max(map(len, self.above)) * self.label_height
        width = self.x(len(across.values)) + self.gap
        self.line_height = int(max(SMALLEST_TEXT, self.text_size * 0.8) * 1.4)
        self.caption_lines = _wrapped(caption, self.small, width - 2 * self.gap)
        bottom = self.gap * 2 + len(self.caption_lines) * self.line_height
        self.size = (width, self.y(len(cells)) + bottom)

    def x(self, column: int) -> int:
        return self.left + column * (self.cell[0] + self.gap)

    def y(self, row: int) -> int:
        return self.top + row * (self.cell[1] + self.gap)

    def _label(self, text: str, width: float) -> list[str]:
        """The lines of a label, truncated to the height of an image."""
        lines, most = _wrapped(text, self.font, width), max(1, self.cell[1] // self.label_height)
        return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1]} …"]


def _wrapped(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) > width:
            lines += [line] if line else []
            *cut, longer = _cut(word, font, width)
            lines += cut
        line = longer
    return [*lines, line] if line else lines


def _cut(word: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> list[str]:
    """Split a word that is too wide, such as a list of passes without spaces."""
    pieces = [""]
    for letter in word:
        if pieces[-1] and font.getlength(pieces[-1] + letter) > width:
            pieces.append("")
        pieces[-1] += letter
    return pieces
