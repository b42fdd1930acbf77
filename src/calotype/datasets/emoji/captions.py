"""Writes several captions for an image: name, kind, keywords, style and background in varied wording.

The same image always gets the same captions.
"""

from calotype.datasets.emoji.artwork import Style
from calotype.datasets.emoji.emojibase import Emoji
from calotype.datasets.emoji.hashing import shuffle, stable_hash

_NO_ARTICLE_KINDS = frozenset(
    ("arrow", "currency", "keycap", "letters", "math", "punctuation", "symbol", "time", "zodiac")
)
_PLURALS = ("people", "men", "women")
_SINGULAR_ENDINGS = ("ss", "us")
_VOWELS = tuple("aeiou")
_SPOKEN_LIKE_CONSONANTS = ("eu", "ewe", "one", "uni")
_NUM_KEYWORDS = 3


def captions(emoji: Emoji, style: Style, background: str) -> list[str]:
    """Return all captions of an image; the first is complete, in the standard wording of prompts."""
    lots = (emoji.hexcode, style.name, background)
    usual = style.words[0]
    other = style.words[stable_hash("style", *lots) % len(style.words)]
    thing, name = with_article(emoji), emoji.name
    where = f"{_a(background)} background"
    keywords = shuffle(emoji.keywords, "keywords", *lots)[:_NUM_KEYWORDS]
    said = [
        f"{thing}, {usual} style, on {where}",
        f"{name}, {other} style, on {where}",
        f"{name} emoji in {other} style on {background}",
        f"{_a(other)} emoji of {thing}, {background} background",
        f"{thing} on {where}",
        f"{name}, {usual} style",
        f"{name} emoji",
        thing,
        f"{emoji.kind}: {name}",
    ]
    if keywords:
        said.append(f"{', '.join([name, *keywords])}, {background} background")
    # Fewer keywords are ambiguous, and no keyword describes a skin tone.
    if len(keywords) == _NUM_KEYWORDS and emoji.tone is None:
        said.append(f"{', '.join(keywords)}, {usual} style, on {where}")
    return list(dict.fromkeys(said))


def with_article(emoji: Emoji) -> str:
    """Return the name with its article, as in "a red apple", but "grapes"."""
    head = emoji.name.partition(" with ")[0].partition(" of ")[0]
    plural = (head.endswith("s") and not head.endswith(_SINGULAR_ENDINGS)) or head.startswith(_PLURALS)
    return emoji.name if plural or emoji.kind in _NO_ARTICLE_KINDS else _a(emoji.name)


def _a(words: str) -> str:
    start = words.lower()
    vowel = start.startswith(_VOWELS) and not start.startswith(_SPOKEN_LIKE_CONSONANTS)
    return f"an {words}" if vowel else f"a {words}"
