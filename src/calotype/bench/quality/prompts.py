"""Draws the evaluation prompts from the captions of the dataset, reproducibly by seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from calotype.bench.quality.dataset import Shown
from calotype.bench.quality.score import ExpectedLabels
from calotype.datasets.emoji.artwork import STYLES
from calotype.datasets.emoji.hashing import stable_hash

FREE_ONE_IN = 4
"""One in this many prompts uses another wording."""
_WORDS = {style.name: "|".join(style.words) for style in STYLES}


@dataclass(frozen=True)
class EvalPrompt:
    """The prompt of one image."""

    prompt: str
    wording: Literal["full", "free"]
    asked: ExpectedLabels
    seed: int
    real: int
    """Index of the real image in its part of the dataset."""


def eval_prompts(shown: Sequence[Shown], count: int, seed: int) -> list[EvalPrompt]:
    """Draw captions of `count` images from `shown`, or of all if there are fewer, with a seed for each."""
    order = sorted(
        range(len(shown)), key=lambda number: stable_hash("quality", str(seed), shown[number].captions[0])
    )
    found = []
    for place, number in enumerate(order[:count]):
        one, full = shown[number], place % FREE_ONE_IN != FREE_ONE_IN - 1
        prompt = one.captions[0] if full else _other_words(one, seed)
        asked = ExpectedLabels(one.base, _style_in(prompt, one), _background_in(prompt, one))
        found.append(EvalPrompt(prompt, "full" if full else "free", asked, seed + place, number))
    return found


def _other_words(one: Shown, seed: int) -> str:
    """Choose a caption that names the emoji, because keywords alone are ambiguous."""
    others = [caption for caption in one.captions[1:] if one.name in caption] or [one.captions[0]]
    return others[stable_hash("wording", str(seed), one.captions[0]) % len(others)]


def _style_in(prompt: str, one: Shown) -> str | None:
    named = re.search(rf"\b({_WORDS.get(one.style, one.style)}) (style|emoji of)\b", prompt)
    return one.style if named else None


def _background_in(prompt: str, one: Shown) -> str | None:
    named = prompt.endswith((f"{one.background} background", f" on {one.background}"))
    return one.background if named else None
