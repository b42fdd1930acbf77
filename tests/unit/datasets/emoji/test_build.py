"""The emoji set built from a few icons: what is in it, always the same, whole or not there."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from calotype.core.errors import RequestError
from calotype.core.progress import Silent
from calotype.datasets.emoji.backgrounds import BACKGROUNDS
from calotype.datasets.emoji.build import Ingredients, build
from calotype.datasets.emoji.manifest import Built
from calotype.datasets.emoji.split import Amounts
from calotype.train.data.sources.webdataset import WebDatasetSource
from tests.unit.datasets.emoji.dataset_reader import ALL_BACKGROUNDS, Read, contents, samples_in

FLAGS = ("1F1E9-1F1EA", "1F3F4")
TWO_TONES = "1FAF1-1F3FB-200D-1FAF2-1F3FC"


class InterruptedAfter(Silent):
    """Somebody presses Ctrl-C after so many steps."""

    def __init__(self, num_steps: int) -> None:
        self._left = num_steps

    def advance(self, amount: int = 1) -> None:
        self._left -= amount
        if self._left < 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def train(built: Built) -> list[Read]:
    return samples_in(built.folder / "train")


@pytest.fixture(scope="module")
def held_out(built: Built) -> list[Read]:
    return samples_in(built.folder / "heldout")


def test_any_number_of_workers_builds_the_same_bytes(
    ingredients: Ingredients, built: Built, tmp_path: Path
) -> None:
    again = build(ingredients, tmp_path / "b", amounts=ALL_BACKGROUNDS, num_workers=2)
    assert contents(again.folder) == contents(built.folder)
    assert again.sha256 == built.sha256


def test_the_recorded_checksums_are_those_of_the_files(built: Built) -> None:
    record = json.loads((built.folder / "dataset.json").read_text())
    shards = sorted(built.folder.glob("*/*.tar"))
    assert [str(shard.relative_to(built.folder)) for shard in shards] == [
        "heldout/heldout-000000.tar",
        "train/train-000000.tar",
    ]
    whole = hashlib.sha256(b"".join(shard.read_bytes() for shard in shards)).hexdigest()
    assert record["sha256"] == built.sha256 == whole
    for name, recorded in record["files"].items():
        assert hashlib.sha256((built.folder / name).read_bytes()).hexdigest() == recorded
    assert {package["licence"] for package in record["packages"]} == {"Apache-2.0", "MIT", "CC-BY-4.0"}


def test_nothing_in_a_shard_tells_when_or_where_it_was_made(built: Built) -> None:
    for shard in built.folder.glob("*/*.tar"):
        with tarfile.open(shard) as archive:
            assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in archive} == {(0, 0, 0, "", "")}


def test_every_corner_has_the_colour_the_sample_names(train: list[Read], held_out: list[Read]) -> None:
    for sample in train + held_out:
        assert sample.picture.size == (128, 128)
        corners = {sample.picture.getpixel((x, y)) for x in (0, 127) for y in (0, 127)}
        assert corners == {tuple(sample.about["background_rgb"])}
        assert BACKGROUNDS[sample.about["background"]] == tuple(sample.about["background_rgb"])


def test_artwork_fills_the_picture_but_for_a_margin(train: list[Read]) -> None:
    for sample in train:
        backdrop = Image.new("RGB", sample.picture.size, tuple(sample.about["background_rgb"]))
        left, top, right, bottom = _box_of_difference(sample.picture, backdrop)
        assert min(left, top, 128 - right, 128 - bottom) >= 4, sample.key
        assert max(right - left, bottom - top) >= 90, sample.key


def test_a_red_apple_is_red_and_a_drawing_lower_than_wide_is_in_the_middle(train: list[Read]) -> None:
    apples = [sample for sample in train if sample.about["name"] == "red apple"]
    assert {sample.about["style"] for sample in apples} == {"noto", "fluent", "twemoji"}
    for apple in apples:
        red, green, blue = apple.picture.resize((1, 1), Image.Resampling.BOX, (48, 60, 80, 92)).getpixel(
            (0, 0)
        )  # type: ignore[misc]
        assert red > 150
        assert red > 2 * max(green, blue)
    melon = next(s for s in train if s.combination[:2] == ("1F349", "twemoji"))
    backdrop = Image.new("RGB", (128, 128), tuple(melon.about["background_rgb"]))
    left, top, right, bottom = _box_of_difference(melon.picture, backdrop)
    assert right - left > bottom - top
    assert abs((top + bottom) / 2 - 64) <= 2
    assert abs((left + right) / 2 - 64) <= 2


def test_there_are_no_flags_and_no_pairs_of_two_tones(train: list[Read], held_out: list[Read]) -> None:
    codes = {sample.about["hexcode"] for sample in train + held_out}
    assert codes.isdisjoint((*FLAGS, TWO_TONES))
    assert not any("flag" in sample.about["name"] for sample in train + held_out)


def test_variants_are_named_and_share_a_base(train: list[Read]) -> None:
    scientists = {
        sample.about["name"]: sample.about for sample in train if sample.about["base"] == "1F9D1-200D-1F52C"
    }
    assert {name: about["tone"] for name, about in scientists.items()} == {
        "scientist": None,
        "man scientist": None,
        "woman scientist": None,
        "woman scientist with light skin tone": 1,
        "woman scientist with medium-dark skin tone": 4,
    }
    toned = scientists["woman scientist with medium-dark skin tone"]
    assert toned["hexcode"] == "1F469-1F3FE-200D-1F52C"
    assert all("medium-dark skin tone" in caption for caption in toned["captions"])


def test_what_cannot_be_seen_is_not_shown(train: list[Read], held_out: list[Read]) -> None:
    def shown_on(name: str, style: str) -> set[str]:
        about = [sample.about for sample in train + held_out]
        return {one["background"] for one in about if (one["name"], one["style"]) == (name, style)}

    assert set(BACKGROUNDS) - shown_on("black heart", "twemoji") == {"black"}
    assert set(BACKGROUNDS) - shown_on("red apple", "fluent") == {"red"}
    assert set(BACKGROUNDS) == shown_on("grinning face", "noto")


def test_held_out_combinations_are_new_and_their_parts_are_not(
    train: list[Read], held_out: list[Read]
) -> None:
    trained = {sample.combination for sample in train}
    kept = {sample.combination for sample in held_out}
    assert len(kept) == len(held_out) > 0
    assert trained.isdisjoint(kept)
    assert 0.02 < len(kept) / (len(kept) + len(trained)) < 0.08
    assert {combination[:2] for combination in kept} <= {combination[:2] for combination in trained}
    assert {combination[2] for combination in trained} == set(BACKGROUNDS)
    assert {sample.about["split"] for sample in train} == {"train"}
    assert {sample.about["split"] for sample in held_out} == {"heldout"}
    # The fixture has this one in one style only.
    assert "1F348" in {combination[0] for combination in trained}
    assert "1F348" not in {combination[0] for combination in kept}


def test_fewer_backgrounds_move_nothing_to_the_other_side(
    ingredients: Ingredients, train: list[Read], held_out: list[Read], tmp_path: Path
) -> None:
    few = build(ingredients, tmp_path / "few", amounts=Amounts(backgrounds=6, toned_backgrounds=2))
    trained = samples_in(few.folder / "train")
    assert {sample.key for sample in trained} < {sample.key for sample in train}
    assert {sample.key for sample in samples_in(few.folder / "heldout")} < {s.key for s in held_out}
    per_emoji = [s.key for s in trained if s.combination[:2] == ("1F469-1F3FB-200D-1F52C", "noto")]
    assert 1 <= len(per_emoji) <= 2


def test_the_trainer_reads_what_was_written(built: Built, train: list[Read]) -> None:
    source = WebDatasetSource(sorted((built.folder / "train").glob("*.tar")))
    assert len(source) == len(train) == built.record["counts"]["train"]
    assert not source.damage
    for index, expected in enumerate(train):
        sample = source.read(index)
        assert sample.key == f"train-000000.tar:{expected.key}"
        assert sample.captions == tuple(expected.about["captions"])
        assert source.size_of(index) == (128, 128)


@pytest.mark.parametrize("steps", [3, 70, 300])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_build_leaves_nothing(
    ingredients: Ingredients, tmp_path: Path, steps: int, workers: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(ingredients, tmp_path / "set", num_workers=workers, progress=InterruptedAfter(steps))
    assert list(tmp_path.iterdir()) == []


def test_the_same_set_is_not_built_twice(ingredients: Ingredients, built: Built) -> None:
    again = build(ingredients, built.folder, amounts=ALL_BACKGROUNDS, progress=InterruptedAfter(0))
    assert not again.is_new
    assert again.record == json.loads((built.folder / "dataset.json").read_text())


def test_a_folder_with_something_else_is_left_alone(
    ingredients: Ingredients, built: Built, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="built with other amounts; remove it"):
        build(ingredients, built.folder, amounts=Amounts(backgrounds=2))
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RequestError, match="is not an emoji dataset"):
        build(ingredients, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_set_that_was_changed_is_noticed(ingredients: Ingredients, tmp_path: Path) -> None:
    amounts = Amounts(backgrounds=1, toned_backgrounds=1)
    one = build(ingredients, tmp_path / "set", amounts=amounts)
    shard = one.folder / "train" / "train-000000.tar"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(RequestError, match=r"changed after it was built \(train/train-000000.tar\)"):
        build(ingredients, one.folder, amounts=amounts)


def _box_of_difference(picture: Image.Image, backdrop: Image.Image) -> tuple[int, int, int, int]:
    from PIL import ImageChops

    box = ImageChops.difference(picture, backdrop).getbbox()
    assert box is not None
    return box
