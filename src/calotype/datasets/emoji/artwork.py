"""Reads the drawings of a style: SVG by code points, from Iconify's packages."""

from collections.abc import Mapping
from dataclasses import dataclass

from calotype.datasets.emoji.codepoints import plain
from calotype.datasets.emoji.npm import FLUENT, NOTO, TWEMOJI, Package, Unpacked


@dataclass(frozen=True)
class Style:
    """One set of emoji artwork."""

    name: str
    words: tuple[str, ...]
    """Its names in captions; the first is the standard one."""
    package: Package
    frame: int
    """Size of the drawing's frame in the 128 pixels of an image; the drawing then spans about 108 pixels,
    because the sets have different margins inside their frames."""


STYLES = (
    Style("noto", ("noto",), NOTO, 116),
    Style("fluent", ("flat", "fluent"), FLUENT, 124),
    Style("twemoji", ("twemoji",), TWEMOJI, 108),
)


@dataclass(frozen=True)
class Drawing:
    """One icon: the content of an SVG element and its frame."""

    body: str
    width: float
    height: float


def drawings(style: Unpacked) -> Mapping[str, Drawing]:
    """Return every drawing of an emoji by its sequence, without retired and unnamed icons."""
    icons, characters = style.read_json(("icons.json", "chars.json"))
    found = {}
    for hexcode, name in characters.items():
        icon = icons["icons"].get(name)
        if icon is not None:
            width, height = (icon.get(side, icons[side]) for side in ("width", "height"))
            found[plain(hexcode)] = Drawing(icon["body"], width, height)
    return found
