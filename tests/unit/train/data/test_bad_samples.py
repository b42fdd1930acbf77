"""Samples that cannot be read: each named, each replaced, and too many stop the run."""

import tarfile
from itertools import islice
from pathlib import Path

import pytest

from calotype.train.data.bad_samples import BadSample, BadSampleReport, DataError, TooManyCorruptError
from calotype.train.data.sources.webdataset_writer import Packed, write_shards
from tests.unit.train.data.specimens import (
    batches_of,
    feed_of,
    fill_folder,
    fill_shards,
    keys_of,
    part,
    picture,
)

SPOILED = {
    "p001.png": (picture(1)[:-25], "cannot be decoded"),
    "p002.png": (b"", "0 bytes"),
    "p003.png": (b"<html>not found</html>", "not a PNG, WebP or JPEG"),
    "p004.txt": (None, "has no caption"),
    "p005.txt": (b" \n", "its caption is empty"),
    "p006.txt": (b"\xff\xfe", "not UTF-8"),
}


def spoil(folder: Path) -> None:
    for name, (content, _) in SPOILED.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
    truncated = folder / "p007.jpg"
    truncated.write_bytes(picture(7, height=80, width=80, kind="JPEG")[:-60])
    (folder / "p007.png").unlink()


@pytest.mark.parametrize("workers", [0, 2])
def test_every_kind_of_corrupt_sample_is_reported_by_name(tmp_path: Path, workers: int) -> None:
    spoil(fill_folder(tmp_path, 12))
    with feed_of(part("folder", tmp_path, num_workers=workers), micro=3) as feed:
        batches = list(islice(feed, 8))
        report = feed.report()
    reasons = {Path(found.name).stem: found.reason for found in report.unreadable}
    expected = {Path(name).stem: reason for name, (_, reason) in SPOILED.items()} | {
        "p007": "cannot be decoded"
    }
    assert reasons.keys() == expected.keys()
    assert all(expected[name] in reason for name, reason in reasons.items())
    assert report.count == 7
    assert all(len(batch) == 3 for batch in batches)
    assert set(keys_of(batches)) == {f"p{number:03d}.png" for number in (0, 8, 9, 10, 11)}


def test_the_report_names_what_was_met_so_far_and_each_once(tmp_path: Path) -> None:
    fill_folder(tmp_path, 6)
    (tmp_path / "p003.png").write_bytes(b"")
    with feed_of(part("folder", tmp_path, shuffle=False), micro=2) as feed:
        next(feed)
        assert feed.report() == BadSampleReport()
        assert next(feed).keys == ("p002.png", "p004.png")
        assert feed.report().names == ("p003.png",)
        list(islice(feed, 6))
        assert feed.report().count == 1


def test_the_next_readable_sample_stands_in_and_resuming_gives_the_same(tmp_path: Path) -> None:
    fill_folder(tmp_path, 8)
    for number in (2, 3):
        (tmp_path / f"p{number:03d}.png").write_bytes(b"")
    data = part("folder", tmp_path, shuffle=False)
    keys = keys_of(batches_of(data, 2, micro=4))
    assert keys == [f"p{number:03d}.png" for number in (0, 1, 4, 5, 4, 5, 6, 7)]
    assert keys_of(batches_of(data, 1, micro=4, samples_seen=4)) == keys[4:]


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_stop_the_run_and_name_the_first(tmp_path: Path, workers: int) -> None:
    fill_folder(tmp_path, 12)
    for number in range(3, 10):
        (tmp_path / f"p{number:03d}.png").write_bytes(b"")
    data = part("folder", tmp_path, shuffle=False, num_workers=workers, most_corrupt=6)
    with (
        feed_of(data, micro=2) as feed,
        pytest.raises(TooManyCorruptError, match=r"7 samples could not be read\np003\.png: .*0 bytes"),
    ):
        list(islice(feed, 12))
    assert "and 2 more" in str(feed.report())
    assert "p003.png" in feed.report().names
    enough = part("folder", tmp_path, shuffle=False, num_workers=workers, most_corrupt=7)
    assert len(batches_of(enough, 12, micro=2)) == 12


def test_when_nothing_can_be_read_it_says_so_instead_of_looking_for_ever(tmp_path: Path) -> None:
    fill_folder(tmp_path, 5)
    for path in tmp_path.glob("*.png"):
        path.write_bytes(b"")
    with (
        feed_of(part("folder", tmp_path)) as feed,
        pytest.raises(DataError, match="none of 5 samples can be read"),
    ):
        next(feed)
    assert feed.report().count == 5


def test_one_readable_sample_is_enough_to_fill_a_batch(tmp_path: Path) -> None:
    fill_folder(tmp_path, 5)
    for number in range(4):
        (tmp_path / f"p{number:03d}.png").write_bytes(b"")
    [batch] = batches_of(part("folder", tmp_path), 1, micro=6)
    assert set(batch.keys) == {"p004.png"}


def test_a_default_caption_serves_where_none_is_written(tmp_path: Path) -> None:
    fill_folder(tmp_path, 4)
    (tmp_path / "p001.txt").unlink()
    (tmp_path / "p002.txt").write_text("")
    data = part("folder", tmp_path, shuffle=False, default_caption="a picture")
    [batch] = batches_of(data, 1)
    assert batch.captions == ("picture 0", "a picture", "a picture", "picture 3")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_cut_off_is_reported_with_the_sample_it_cost(tmp_path: Path, workers: int) -> None:
    paths = fill_shards(tmp_path, 8, 4)
    with tarfile.open(paths[1]) as archive:
        cut_at = archive.getmember("s007.png").offset_data + 10
    paths[1].write_bytes(paths[1].read_bytes()[:cut_at])
    with feed_of(part("shards", tmp_path, num_workers=workers)) as feed:
        assert feed.report().names == (f"shard-000001.tar:byte {cut_at}",)
        keys = keys_of(list(islice(feed, 4)))
        assert "shard-000001.tar:s007" in feed.report().names
    assert len(set(keys)) == 7


def test_json_that_breaks_readers_costs_its_own_samples_alone(tmp_path: Path) -> None:
    captions = {"a": '{"caption": "half \\ud83d"}', "b": "[" * 10**5, "c": '{"caption": "whole"}'}
    samples = [Packed(key, {"png": picture(), "json": text}) for key, text in captions.items()]
    [path] = write_shards(tmp_path, samples, 3)
    with feed_of(part("shards", path), micro=3) as feed:
        assert next(feed).captions == ("whole",) * 3
        reasons = {sample.name[-1]: sample.reason for sample in feed.report().unreadable}
    assert reasons.pop("a") == "its caption is not valid Unicode"
    assert reasons.pop("b").startswith("its JSON cannot be read: ")
    assert not reasons


def test_damage_known_at_the_start_counts(tmp_path: Path) -> None:
    [path] = write_shards(tmp_path, [Packed("a", {"png": picture(), "jpg": picture(), "txt": "a"})], 1)
    with pytest.raises(TooManyCorruptError, match=r"shard-000000\.tar:a\.png: 'a' has another member"):
        feed_of(part("shards", path, most_corrupt=0))


def test_pictures_of_unknown_size_are_reported_with_buckets_too(tmp_path: Path) -> None:
    fill_folder(tmp_path, 8, [(16, 16), (16, 60)])
    (tmp_path / "p001.png").write_bytes(b"broken")
    with feed_of(part("folder", tmp_path, buckets=True), micro=2) as feed:
        batches = list(islice(feed, 8))
        assert feed.report().unreadable == (BadSample("p001.png", "the image is not a PNG, WebP or JPEG"),)
    assert len(set(keys_of(batches))) == 7


@pytest.mark.parametrize("workers", [0, 1])
def test_what_ends_the_run_arrives_whole_from_a_worker(tmp_path: Path, workers: int) -> None:
    """An error raised in a worker would reach the user as a traceback in a message."""
    [path] = fill_shards(tmp_path, 4, 4)
    data = part("shards", tmp_path, num_workers=workers)
    with feed_of(data) as feed:
        next(feed)
        path.write_bytes(path.read_bytes() + bytes(512))
    with feed_of(data) as feed:
        path.write_bytes(path.read_bytes() + bytes(512))
        with pytest.raises(DataError) as stopped:
            list(islice(feed, 50))
    assert str(stopped.value) == f"data: {path}: changed since the run began; start again to index it anew"
