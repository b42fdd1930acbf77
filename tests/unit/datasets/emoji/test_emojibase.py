"""What emoji are called, which are variants of one another, and how captions put it."""

import pytest

from calotype.datasets.emoji.artwork import STYLES
from calotype.datasets.emoji.backgrounds import BACKGROUNDS
from calotype.datasets.emoji.build import Ingredients
from calotype.datasets.emoji.captions import captions, with_article
from calotype.datasets.emoji.codepoints import without_variants
from calotype.datasets.emoji.emojibase import Emoji, read_emoji, spoken_name

APPLE = Emoji("1F34E", "1F34E", "red apple", "fruit", ("apple", "diet", "food", "fruit", "red"))
_NOTO, FLUENT, _TWEMOJI = STYLES


@pytest.mark.parametrize(
    ("label", "phrase"),
    [
        ("red apple", "red apple"),
        ("woman scientist: medium-dark skin tone", "woman scientist with medium-dark skin tone"),
        ("man: dark skin tone, red hair", "man with dark skin tone and red hair"),
        ("woman: light skin tone, bald", "bald woman with light skin tone"),
        ("person: beard", "person with beard"),
        ("person walking: facing right", "person walking facing right"),
        ("man running: light skin tone, facing right", "man running facing right with light skin tone"),
        ("family: man, woman, girl, boy", "family of man, woman, girl and boy"),
        ("kiss: woman, man, light skin tone", "kiss of woman and man with light skin tone"),
        ("keycap: 5", "keycap 5"),
        ("Japanese “here” button", "Japanese here button"),
        ("man’s shoe", "man's shoe"),
    ],
)
def test_names_are_phrases(label: str, phrase: str) -> None:
    assert spoken_name(label) == phrase


@pytest.mark.parametrize(
    ("base", "variants"),
    [
        ("1F9D1-200D-1F52C", ["1F468-200D-1F52C", "1F469-1F3FE-200D-1F52C", "1F9D1-1F3FB-200D-1F52C"]),
        ("1F3C3", ["1F3C3-200D-2642-FE0F", "1F3C3-1F3FF-200D-2640-FE0F"]),
        ("1F3C3-200D-27A1", ["1F3C3-200D-2640-FE0F-200D-27A1-FE0F"]),
        ("1F48F", ["1F469-200D-2764-FE0F-200D-1F48B-200D-1F468"]),
        ("1F491", ["1F468-200D-2764-FE0F-200D-1F468"]),
        ("1F9D1-200D-1F91D-200D-1F9D1", ["1F46B", "1F46C", "1F46D-1F3FB"]),
        ("1F9D1-200D-1F9D1-200D-1F9D2", ["1F468-200D-1F469-200D-1F467"]),
        ("1F34E", ["1F34E"]),
        ("2764", ["2764-FE0F"]),
    ],
)
def test_skin_tone_and_gender_make_variants(base: str, variants: list[str]) -> None:
    assert without_variants(base) == base
    assert {without_variants(variant) for variant in variants} == {base}


def test_every_base_is_an_emoji_and_names_are_unique(ingredients: Ingredients) -> None:
    emoji = read_emoji(ingredients.names)
    assert len({one.name for one in emoji}) == len({one.hexcode for one in emoji}) == len(emoji)
    # The fixture has men running, but nobody else.
    assert {one.base for one in emoji} - {one.hexcode for one in emoji} == {"1F3C3"}


def test_captions_say_it_in_many_ways() -> None:
    said = captions(APPLE, FLUENT, "light blue")
    assert said[0] == "a red apple, flat style, on a light blue background"
    assert {"a red apple", "fruit: red apple", "red apple emoji", "red apple, flat style"} < set(said)
    assert len(said) == len(set(said)) >= 10
    assert said == captions(APPLE, FLUENT, "light blue")
    elsewhere = [text for background in BACKGROUNDS for text in captions(APPLE, FLUENT, background)]
    assert any("fluent" in text for text in elsewhere)
    full = [text for text in said if "light blue" in text and ("flat" in text or "fluent" in text)]
    assert len(full) >= len(said) / 3


def test_keywords_alone_are_said_only_where_they_mean_something() -> None:
    def nameless(emoji: Emoji) -> list[str]:
        return [text for text in captions(emoji, FLUENT, "red") if emoji.name not in text]

    assert len(nameless(APPLE)) == 1
    assert nameless(Emoji("1F573", "1F573", "hole", "emotion", ())) == []
    assert nameless(Emoji("1", "1", "pilot with light skin tone", "person", ("plane", "sky", "jet"), 1)) == []


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("red apple", "fruit", "a red apple"),
        ("orange", "fruit", "an orange"),
        ("unicorn", "mammal", "a unicorn"),
        ("grapes", "fruit", "grapes"),
        ("skis", "sport", "skis"),
        ("cactus", "plant", "a cactus"),
        ("men wrestling", "person", "men wrestling"),
        ("face with tears of joy", "face", "a face with tears of joy"),
        ("keycap 5", "keycap", "keycap 5"),
        ("heavy dollar sign", "currency", "heavy dollar sign"),
    ],
)
def test_articles_stand_where_they_should(name: str, kind: str, expected: str) -> None:
    assert with_article(Emoji("0", "0", name, kind, ())) == expected
