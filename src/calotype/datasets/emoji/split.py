"""Chooses the images to build and the held-out ones.

Everything follows from the names of emoji, style and background, so that more backgrounds or a newer release
of the artwork never move a combination from one side to the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calotype.datasets.emoji.artwork import Style
from calotype.datasets.emoji.emojibase import Emoji
from calotype.datasets.emoji.hashing import shuffle, stable_hash

HELD_OUT_ONE_IN = 20


@dataclass(frozen=True)
class Picture:
    """One combination of emoji, style and background."""

    emoji: Emoji
    style: Style
    background: str
    held_out: bool

    @property
    def key(self) -> str:
        return f"{self.emoji.hexcode.lower()}_{self.style.name}_{self.background.replace(' ', '-')}"


@dataclass(frozen=True)
class Drawn:
    """An emoji in a style, with the backgrounds it is visible on."""

    emoji: Emoji
    style: Style
    backgrounds: tuple[str, ...]


@dataclass(frozen=True)
class Amounts:
    """Return the number of backgrounds per style; emoji with a skin tone get fewer because they are many."""

    backgrounds: int = 10
    toned_backgrounds: int = 3

    def of(self, emoji: Emoji) -> int:
        return self.backgrounds if emoji.tone is None else self.toned_backgrounds


def plan_images(drawn: Sequence[Drawn], amounts: Amounts) -> list[Picture]:
    """Return every image, in an order that mixes emoji and styles."""
    num_styles: dict[str, int] = {}
    for one in drawn:
        num_styles[one.emoji.hexcode] = num_styles.get(one.emoji.hexcode, 0) + 1
    pictures = [picture for one in drawn for picture in _pictures_of(one, amounts, num_styles)]
    return sorted(pictures, key=lambda picture: (stable_hash("order", picture.key), picture.key))


def _pictures_of(drawn: Drawn, amounts: Amounts, num_styles: Mapping[str, int]) -> Iterator[Picture]:
    emoji, style = drawn.emoji, drawn.style
    ordered = shuffle(drawn.backgrounds, "background", emoji.hexcode, style.name)
    for place, background in enumerate(ordered[: amounts.of(emoji)]):
        # The first background, and an emoji's only style, stay in training: a combination whose parts never
        # occur in training would test knowledge that the model cannot have.
        may_be = place > 0 and num_styles[emoji.hexcode] > 1
        held_out = (
            may_be and stable_hash("held out", emoji.hexcode, style.name, background) % HELD_OUT_ONE_IN == 0
        )
        yield Picture(emoji, style, background, held_out)
