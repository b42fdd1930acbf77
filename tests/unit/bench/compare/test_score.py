"""What is read off real pictures, and what is asked of a model."""

from collections import Counter

import pytest
import torch

from calotype.bench.quality.background_check import background_of
from calotype.bench.quality.dataset import EmojiSet, Shown
from calotype.bench.quality.duplicates import groups, merge_identical
from calotype.bench.quality.prompts import eval_prompts
from calotype.bench.quality.score import ExpectedLabels, ImageScore, accuracy
from calotype.datasets.emoji.backgrounds import BACKGROUNDS


def test_every_real_background_is_read_right(real: EmojiSet) -> None:
    train = real.read("train")
    which = range(0, len(train), 3)
    read = [background_of(picture) for picture in train.pixels(real.side, which)]
    assert read == [train.shown[number].background for number in which]


@pytest.mark.parametrize("name", list(BACKGROUNDS))
def test_a_background_may_be_a_little_off_but_not_another(name: str) -> None:
    page = torch.tensor(BACKGROUNDS[name], dtype=torch.int32)[:, None, None].expand(3, 128, 128)
    for off in (-25, 25):
        assert background_of((page + off).clamp(0, 255).to(torch.uint8)) == name
    between = (page + torch.tensor([45, -45, 45])[:, None, None]).clamp(0, 255)
    assert background_of(between.to(torch.uint8)) != name


def test_a_border_of_many_colours_is_no_background() -> None:
    page = torch.full((3, 128, 128), 255, dtype=torch.uint8)
    assert background_of(page) == "white"
    page[:, :64] = 16
    assert background_of(page) is None
    ramp = torch.linspace(0, 255, 128).to(torch.uint8).expand(3, 128, 128)
    assert background_of(ramp) is None


def _shown(base: str, fingerprint: str, *captions: str) -> Shown:
    return Shown(base, "red apple", "fluent", "red", captions or (base,), fingerprint.encode())


def test_emoji_drawn_alike_are_merged_through_others_too() -> None:
    pictures = [_shown("A", "1"), _shown("C", "2"), _shown("B", "1"), _shown("B", "2"), _shown("D", "3")]
    leaders = merge_identical(pictures)
    assert leaders == {"A": "A", "B": "A", "C": "A", "D": "D"}
    assert groups(leaders) == [["A", "B", "C"]]


def test_a_caption_is_judged_by_what_it_names() -> None:
    captions = {
        "a red apple, flat style, on a red background": ("fluent", "red"),
        "red apple emoji in fluent style on red": ("fluent", "red"),
        "a flat emoji of a red apple, red background": ("fluent", "red"),
        "a red apple on a red background": (None, "red"),
        "red apple, flat style": ("fluent", None),
        "a red apple": (None, None),
    }
    for caption, (style, background) in captions.items():
        (asked,) = eval_prompts([_shown("A", "1", caption)], 1, seed=0)
        assert asked.prompt == caption
        assert (asked.asked.style, asked.asked.background) == (style, background)


def test_the_same_seed_asks_the_same_and_mostly_in_usual_words(real: EmojiSet) -> None:
    shown = real.read("train").shown
    first = eval_prompts(shown, 40, seed=5)
    assert first == eval_prompts(shown, 40, seed=5)
    assert {one.prompt for one in first} != {one.prompt for one in eval_prompts(shown, 40, seed=6)}
    assert Counter(one.wording for one in first) == {"full": 30, "free": 10}
    assert len({one.real for one in first}) == len({one.seed for one in first}) == 40
    for one in first:
        about = shown[one.real]
        assert one.prompt in about.captions
        assert about.name in one.prompt
        if one.wording == "full":
            assert one.asked == ExpectedLabels(about.base, about.style, about.background)
    assert len(eval_prompts(shown, 10**6, seed=5)) == len(shown)


def test_accuracy_counts_what_was_asked_alone() -> None:
    def verdict(
        asked: ExpectedLabels, place: int, style: str = "noto", background: str | None = "red"
    ) -> ImageScore:
        return ImageScore(asked, "A", style, background, place, 0.5)

    everything, open_ = ExpectedLabels("A", "noto", "red"), ExpectedLabels("A", None, None)
    found = accuracy(
        [
            verdict(everything, 1),
            verdict(everything, 5, style="fluent"),
            verdict(everything, 6, background=None),
            verdict(open_, 1, style="fluent", background="blue"),
        ]
    )
    assert (found.pictures, found.emoji_top1, found.emoji_top5) == (4, 0.5, 0.75)
    assert found.style == pytest.approx(2 / 3)
    assert found.background == pytest.approx(2 / 3)
    nothing = accuracy([verdict(open_, 1)])
    assert nothing.style is nothing.background is None
