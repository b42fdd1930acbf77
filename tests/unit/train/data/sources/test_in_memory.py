"""Pictures kept in memory: batches, captions and reports are those without it, and files are read once."""

import json
import logging
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from calotype.core.errors import DoesNotFitError, RequestError
from calotype.core.hardware import Memory
from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.bad_samples import BadSampleReport, DataError, TooManyCorruptError
from calotype.train.data.dataloader import build_single_pass
from calotype.train.data.sources import in_memory
from calotype.train.data.sources.webdataset_writer import Packed, write_shards
from calotype.train.data.types import Batch
from calotype.train.recipes import load_recipe
from tests.unit.train.data.specimens import (
    SIDE,
    batches_of,
    feed_of,
    fill_folder,
    fill_shards,
    keys_of,
    needs,
    part,
    picture,
    same,
)

NUM_PICTURES = 150
"""More than two pieces, so that workers share them."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of many sizes, so that a wrong row, crop or mirror shows; several captions; some unreadable."""
    folder, noise = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)

    def packed(number: int) -> Packed:
        height, width = SIDE + number % 3, SIDE + 2 * (number % 6) + number % 5
        image = Image.fromarray(noise.integers(0, 256, (height, width, 3), dtype=np.uint8))
        file = folder / "one.webp"
        image.save(file, lossless=True)
        content = b"broken" if number % 17 == 3 else file.read_bytes()
        file.unlink()
        about = {"captions": [f"{number} said {way}" for way in "abcde"]} if number % 29 else {}
        return Packed(f"s{number:03d}", {"webp": content, "json": json.dumps(about)})

    write_shards(folder, (packed(number) for number in range(NUM_PICTURES)), 40)
    return folder


def both(data: DataConfig, **place: Any) -> list[tuple[list[Batch], BadSampleReport]]:
    """Four epochs of batches and what was reported, read as it goes and kept in memory."""
    found = []
    for keeps in (False, True):
        with feed_of(data.model_copy(update={"in_memory": keeps}), micro=10, **place) as feed:
            batches = [batch.to("cpu") for batch in islice(feed, 60 // place.get("world_size", 1))]
            found.append((batches, feed.report()))
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, {}),
        ({"random_flip": True}, {"samples_seen": 137}),
        ({"random_flip": True, "seed": 5}, {"rank": 1, "world_size": 2}),
        ({"shuffle": False, "default_caption": "a thing"}, {}),
    ],
)
def test_nothing_differs_from_reading_as_it_goes(
    shards: Path, workers: int, options: dict[str, Any], place: dict[str, int]
) -> None:
    (read, report), (kept, report_of_kept) = both(
        part("shards", shards, num_workers=workers, **options), **place
    )
    assert len(read) >= 30
    assert all(same(a, b) for a, b in zip(read, kept, strict=True))
    assert report_of_kept == report
    assert report.count >= 9


def test_a_batch_at_a_time_is_reported_as_it_is_met(tmp_path: Path) -> None:
    fill_folder(tmp_path, 6)
    (tmp_path / "p003.png").write_bytes(b"")
    with feed_of(part("folder", tmp_path, shuffle=False, in_memory=True), micro=2) as feed:
        next(feed)
        assert feed.report() == BadSampleReport()
        assert next(feed).keys == ("p002.png", "p004.png")
        assert feed.report().names == ("p003.png",)


def test_mirroring_is_decided_at_each_visit(shards: Path) -> None:
    data = part("shards", shards, random_flip=True, in_memory=True)
    seen: dict[str, set[bytes]] = {}
    for batch in batches_of(data, 60, micro=10):
        assert batch.pixels is not None
        for key, pixels in zip(batch.keys, batch.pixels, strict=True):
            seen.setdefault(key, set()).add(pixels.numpy().tobytes())
    assert max(len(looks) for looks in seen.values()) == 2
    assert sum(len(looks) == 2 for looks in seen.values()) > len(seen) / 2


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_not_read_again(tmp_path: Path, workers: int) -> None:
    folder = fill_folder(tmp_path / "pictures", 9)
    with feed_of(part("folder", folder, num_workers=workers, in_memory=True), micro=3) as feed:
        shutil.rmtree(folder)
        batches = [batch.to("cpu") for batch in islice(feed, 30)]
        assert feed.report().count == 0
    for epoch in range(10):
        assert len(set(keys_of(batches[3 * epoch : 3 * epoch + 3]))) == 9
    for batch in batches:
        assert batch.pixels is not None
        numbers = [round((float(row[0, 0, 0]) + 1) * 127.5) for row in batch.pixels]
        assert [f"p{number:03d}.png" for number in numbers] == list(batch.keys)


def test_too_many_unreadable_stop_the_run_as_without(tmp_path: Path) -> None:
    fill_folder(tmp_path, 12)
    for number in range(3, 10):
        (tmp_path / f"p{number:03d}.png").write_bytes(b"")
    data = part("folder", tmp_path, shuffle=False, most_corrupt=6, in_memory=True)
    with (
        feed_of(data, micro=2) as feed,
        pytest.raises(TooManyCorruptError, match="7 samples could not be read"),
    ):
        list(islice(feed, 12))
    for path in tmp_path.glob("*.png"):
        path.write_bytes(b"")
    with (
        feed_of(part("folder", tmp_path, in_memory=True)) as feed,
        pytest.raises(DataError, match="none of 12 samples can be read"),
    ):
        next(feed)


class Watching:
    def __init__(self) -> None:
        self.label, self.total, self.done = "", 0, 0

    def start(self, label: str, total: int) -> None:
        self.label, self.total = label, total

    def advance(self, amount: int = 1) -> None:
        self.done += amount

    def describe(self, label: str) -> None:
        raise AssertionError(label)


def test_decoding_can_be_watched(shards: Path) -> None:
    watching = Watching()
    feed_of(part("shards", shards, in_memory=True), progress=watching).close()
    assert (watching.label, watching.total, watching.done) == ("decode", NUM_PICTURES, NUM_PICTURES)


@pytest.mark.parametrize(
    ("override", "name"), [("data.crop=random", "crop=random"), ("data.buckets=true", "buckets=true")]
)
def test_pictures_whose_crop_varies_are_refused(override: str, name: str) -> None:
    with pytest.raises(RequestError, match=f"one size and crop, which {name} changes; leave out one"):
        load_recipe("emoji", ["data.in_memory=true", override])


def test_validation_that_reads_a_few_samples_does_not_keep_all() -> None:
    with pytest.raises(RequestError, match="in_memory would decode all samples for a few"):
        load_recipe("emoji", ["validation.data.kind=folder", "validation.data.in_memory=true"])


def test_latents_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "latents.npy"
    np.save(file, np.zeros((4, 2, 2), dtype=np.float32))
    write_shards(tmp_path / "in", [Packed("a", {"npy": file.read_bytes(), "txt": "a"})], 1)
    with pytest.raises(DataError, match=r"shard-000000\.tar:a: holds latents, .* set data\.in_memory=false"):
        feed_of(part("shards", tmp_path / "in", in_memory=True))


@pytest.mark.parametrize("workers", [0, 1])
def test_what_ends_the_run_arrives_whole_from_a_worker(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = fill_shards(tmp_path, 4, 4)
    place_for = in_memory._cache_device

    def changed_in_between(*arguments: Any) -> torch.device:
        path.write_bytes(path.read_bytes() + bytes(512))
        return place_for(*arguments)

    monkeypatch.setattr(in_memory, "_cache_device", changed_in_between)
    with pytest.raises(DataError) as stopped:
        feed_of(part("shards", tmp_path, num_workers=workers, in_memory=True))
    assert str(stopped.value) == f"data: {path}: changed since the run began; start again to index it anew"


def test_what_has_no_effect_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        feed_of(part("synthetic", in_memory=True)).close()
        assert "data.in_memory=True has no effect with data.kind=synthetic" in caplog.text
        fill_folder(tmp_path, 2)
        with build_single_pass(part("folder", tmp_path, in_memory=True), needs(), micro_batch_size=2) as feed:
            assert len(keys_of(list(feed))) == 2
    assert "has no effect where every sample is read once" in caplog.text


class TestRoom:
    """Decided before anything is read."""

    @pytest.fixture
    def free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory = Memory(2**34, 2**33, None)
        monkeypatch.setattr(in_memory, "read_memory", lambda: memory)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**35, 2**36))

    @pytest.mark.usefixtures("free")
    def test_what_does_not_fit_says_how_much_and_the_way_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        count = 2**33 // (3 * 128 * 128)
        with pytest.raises(
            DoesNotFitError,
            match=r"174762 images of 128×128 need 8\.00 GiB .* 8\.00 GiB are free.* 80%.*in_memory=false",
        ):
            in_memory._cache_device(count, (128, 128), torch.device("cpu"))
        assert in_memory._cache_device(count * 3 // 4, (128, 128), torch.device("cpu")).type == "cpu"
        # Each process of a node has its own.
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        with pytest.raises(DoesNotFitError, match=r"need 12\.00 GiB"):
            in_memory._cache_device(count * 3 // 4, (128, 128), torch.device("cpu"))

    @pytest.mark.usefixtures("free")
    def test_they_lie_beside_the_training_when_that_takes_little_of_its_room(self) -> None:
        device = torch.device("cuda", 0)
        assert in_memory._cache_device(60_618, (128, 128), device) == device
        assert in_memory._cache_device(80_000, (128, 128), device).type == "cpu"


def test_the_order_can_be_told_from_the_facts_as_without(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    (tmp_path / "p001.png").write_bytes(picture(9))
    facts = [feed_of(part("folder", tmp_path, in_memory=keeps)).facts for keeps in (False, True)]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("count", [4, 11])
def test_kept_latents_are_those_of_the_pictures(tmp_path: Path, count: int) -> None:
    """Also when the last pictures are fewer than are encoded together."""
    together = []

    def encode(pixels: torch.Tensor) -> torch.Tensor:
        together.append(len(pixels))
        return torch.stack([pixels.mean(dim=1, keepdim=True), pixels[:, :1]], dim=1)

    data = part("folder", fill_folder(tmp_path, count), in_memory=True)
    kept = data.model_copy(update={"keep_latents": True})
    with feed_of(data, micro=4) as feed, feed_of(kept, micro=4, encode=encode) as encoded:
        for read, known in islice(zip(feed, encoded, strict=False), 9):
            batch = read.to("cpu")
            assert (known.keys, known.captions) == (batch.keys, batch.captions)
            assert known.pixels is None
            assert batch.pixels is not None
            assert known.moments is not None
            torch.testing.assert_close(known.moments, encode(batch.pixels), rtol=0, atol=0)
    assert set(together) == {4}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"in_memory": False}, "set in_memory=true"),
        ({"in_memory": True, "random_flip": True}, "leave out random_flip"),
    ],
)
def test_latents_are_kept_of_what_is_in_memory_as_it_is(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        part("folder", Path("x"), keep_latents=True, **changes)
