"""The drawings of a style: SVG by code points, as Iconify's packages hold them. Renders nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from calotype.datasets.emoji.codepoints import plain
from calotype.datasets.emoji.npm import FLUENT, NOTO, TWEMOJI, Package, Unpacked


@dataclass(frozen=True)
class Style:
    """One artist's way of drawing all emoji."""

    name: str
    words: tuple[str, ...]
    """What captions call it; the first is the usual one."""
    package: Package
    frame: int
    """How many of a picture's 128 pixels the drawing's own frame takes; what is drawn then spans about 108,
    because the sets leave different margins inside their frames."""


STYLES = (
    Style("noto", ("noto",), NOTO, 116),
    Style("fluent", ("flat", "fluent"), FLUENT, 124),
    Style("twemoji", ("twemoji",), TWEMOJI, 108),
)


@dataclass(frozen=True)
class Drawing:
    """One icon: the inside of an SVG element and the frame it is drawn in."""

    body: str
    width: float
    height: float


def drawings(style: Unpacked) -> Mapping[str, Drawing]:
    """Every drawing that stands for an emoji, by its sequence; retired and unnamed icons do not."""
    icons, characters = style.read_json(("icons.json", "chars.json"))
    found = {}
    for hexcode, name in characters.items():
        icon = icons["icons"].get(name)
        if icon is not None:
            width, height = (icon.get(side, icons[side]) for side in ("width", "height"))
            found[plain(hexcode)] = Drawing(icon["body"], width, height)
    return found
