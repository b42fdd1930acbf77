"""Reads emoji names, keywords and kinds from emojibase, worded as in prompts.

Flags are left out, and so are parts that are no emoji by themselves (skin tones, hair) and people of two
different skin tones, whom a name can hardly describe. Knows nothing of pictures.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calotype.datasets.emoji.codepoints import plain, without_variants
from calotype.datasets.emoji.npm import Unpacked

_LEFT_OUT = ("component", "flags")
_TONE = " skin tone"
_BALD, _FACING = "bald", "facing "
_KINDS = {
    "alphanum": "letters",
    "animal-bird": "bird",
    "animal-bug": "bug",
    "animal-mammal": "mammal",
    "animal-reptile": "reptile",
    "arts-crafts": "art",
    "av-symbol": "symbol",
    "award-medal": "medal",
    "body-parts": "body part",
    "book-paper": "paper",
    "food-fruit": "fruit",
    "food-sweet": "sweet",
    "food-vegetable": "vegetable",
    "geometric": "shape",
    "light-video": "light",
    "musical-instrument": "musical instrument",
    "other-object": "object",
    "other-symbol": "symbol",
    "place-building": "building",
    "plant-flower": "flower",
    "sky-weather": "weather",
    "transport-sign": "sign",
}


@dataclass(frozen=True)
class Emoji:
    """One emoji with its description."""

    hexcode: str
    base: str
    """The base that all variants in skin tone and gender share."""
    name: str
    kind: str
    keywords: tuple[str, ...]
    tone: int | None = None
    """Skin tone from 1 (light) to 5 (dark), if any."""


def read_emoji(source: Unpacked) -> list[Emoji]:
    """Return every used emoji, in Unicode's order."""
    entries, groups = source.read_json(("en/data.json", "meta/groups.json"))
    left_out = {int(number) for number, key in groups["groups"].items() if key in _LEFT_OUT}
    used = (entry for entry in entries if "group" in entry and entry["group"] not in left_out)
    ordered = sorted(used, key=lambda entry: entry["order"])
    return [emoji for entry in ordered for emoji in _with_tones(entry, groups["subgroups"])]


def read_words(source: Unpacked) -> list[str]:
    """Return all names and keywords, including flags, to cover general words in the vocabulary."""
    (entries,) = source.read_json(("en/data.json",))
    return [spoken_name(entry["label"]) for entry in entries] + [
        tag for entry in entries for tag in entry.get("tags", ())
    ]


def spoken_name(label: str) -> str:
    """The name as a phrase: "man: dark skin tone, red hair" is a man with dark skin tone and red hair."""
    label = label.translate({ord("“"): None, ord("”"): None, ord("’"): "'", ord("⊛"): None}).strip()
    head, colon, rest = label.partition(": ")
    if not colon:
        return label
    if head == "keycap":
        return f"{head} {rest}"
    details = rest.split(", ")
    traits = [detail for detail in details if detail.endswith((_TONE, "hair", "beard"))]
    others = [detail for detail in details if detail not in traits]
    if _BALD in others:
        head, others = f"{_BALD} {head}", []
    facing = [detail for detail in others if detail.startswith(_FACING)]
    people = [detail for detail in others if detail not in facing]
    return " ".join(
        [
            head,
            *([f"of {_listed(people)}"] if people else []),
            *facing,
            *([f"with {_listed(traits)}"] if traits else []),
        ]
    )


def _with_tones(entry: Mapping[str, Any], subgroups: Mapping[str, str]) -> Iterator[Emoji]:
    key = subgroups[str(entry["subgroup"])]
    kind = _KINDS.get(key, key.partition("-")[0])
    name = spoken_name(entry["label"])
    keywords = tuple(tag for tag in entry.get("tags", ()) if tag != name)
    # Pairs of people have different sequences with a tone, so the base is always the entry's own.
    base = without_variants(entry["hexcode"])
    yield Emoji(plain(entry["hexcode"]), base, name, kind, keywords)
    for toned in entry.get("skins", ()):
        if isinstance(toned["tone"], int):
            name = spoken_name(toned["label"])
            yield Emoji(plain(toned["hexcode"]), base, name, kind, keywords, toned["tone"])


def _listed(things: Sequence[str]) -> str:
    *others, last = things
    return f"{', '.join(others)} and {last}" if others else last
