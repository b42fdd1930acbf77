"""MosaicML's MDS: plain shards read here, the rest through its package, of which a stand-in is enough.

That plain shards are read as the package (0.13.0) writes them was checked by hand, and that the package reads
what `mds_writer` writes.
"""

import json
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from calotype.core.errors import NotFoundError
from calotype.train.data.bad_samples import CorruptSampleError, DataError
from calotype.train.data.image_sizes import image_sizes
from calotype.train.data.sources.mds import MdsSource
from calotype.train.data.sources.mds_streaming import StreamedMds, open_mds
from tests.unit.train.data.mds_writer import write_mds
from tests.unit.train.data.specimens import batches_of, feed_of, keys_of, part, picture

COLUMNS = {"image": "png", "caption": "str", "n": "int"}


def samples(count: int) -> list[dict[str, bytes]]:
    return [
        {"image": picture(n), "caption": f"picture {n}".encode(), "n": struct.pack("<q", n)}
        for n in range(count)
    ]


def raw(number: int) -> bytes:
    """A picture as the encoding `pil` has it."""
    return struct.pack("<III", 4, 2, 3) + b"RGB" + bytes([number] * 24)


def test_plain_shards_are_read_without_the_package(tmp_path: Path) -> None:
    source = open_mds(str(write_mds(tmp_path, COLUMNS, samples(7))))
    assert isinstance(source, MdsSource)
    assert len(source) == 7
    for index in (6, 0, 3):
        sample = source.read(index)
        assert sample.key == f"shard.0000{index // 3}.mds:{index % 3}"
        assert (sample.caption, sample.picture) == (f"picture {index}", picture(index))
        assert source.size_of(index) == (16, 16)
    source.close()


def test_training_covers_every_sample(tmp_path: Path) -> None:
    write_mds(tmp_path, COLUMNS, samples(8))
    assert len(set(keys_of(batches_of(part("mds", tmp_path), 2)))) == 8


def test_other_column_names_and_raw_pictures(tmp_path: Path) -> None:
    rows = [{"jpg": raw(n), "text": b"raw"} for n in range(2)]
    source = open_mds(str(write_mds(tmp_path, {"jpg": "pil", "text": "bytes"}, rows)))
    image = source.read(1).picture
    assert isinstance(image, Image.Image)
    assert (image.size, image.getpixel((0, 0))) == ((4, 2), (1, 1, 1))
    assert source.size_of(1) == (2, 4)


def test_other_pictures_under_the_same_names_are_other_data(tmp_path: Path) -> None:
    small, large = (
        [{**sample, "image": picture(height=side, width=2 * side)} for sample in samples(4)]
        for side in (16, 32)
    )
    sources = [
        open_mds(str(write_mds(tmp_path / name, COLUMNS, rows)))
        for name, rows in (("small", small), ("again", small), ("large", large))
    ]
    one, again, other = (source.identity for source in sources)
    assert one == again != other
    sizes = [image_sizes(source).tolist() for source in sources]
    assert sizes == [[[16, 32]] * 4, [[16, 32]] * 4, [[32, 64]] * 4]


def with_digests(folder: Path, **digests: str) -> Path:
    """The index as its package writes it where it was told to digest the shards."""
    values = json.loads((folder / "index.json").read_text())
    values["shards"][0]["raw_data"]["hashes"] = digests
    (folder / "index.json").write_text(json.dumps(values))
    return folder


def test_samples_as_long_as_others_are_told_apart_by_digests(tmp_path: Path) -> None:
    write_mds(tmp_path, COLUMNS, samples(2))
    one, other = (open_mds(str(with_digests(tmp_path, sha1=found))).identity for found in ("ab", "cd"))
    assert one != other


def test_damage_is_one_sample_s_trouble(tmp_path: Path) -> None:
    source = open_mds(str(write_mds(tmp_path, COLUMNS, samples(4), per_shard=2)))
    last = tmp_path / "shard.00001.mds"
    last.write_bytes(last.read_bytes()[:-3])
    assert source.read(2).caption == "picture 2"
    with pytest.raises(
        CorruptSampleError, match=r"shard\.00001\.mds:1: cannot be read: the shard ends at byte"
    ):
        source.read(3)
    assert source.size_of(3) is None
    first = bytearray((tmp_path / "shard.00000.mds").read_bytes())
    offset = struct.unpack_from("<I", first, 4)[0]
    first[offset : offset + 4] = struct.pack("<I", 10**6)
    (tmp_path / "shard.00000.mds").write_bytes(first)
    source.close()
    with pytest.raises(CorruptSampleError, match="its columns take"):
        source.read(0)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"video": "bytes", "caption": "str"}, "no column is an image: it has caption, video"),
        ({"image": "pkl", "caption": "str"}, "its image is encoded as 'pkl'"),
        ({"image": "png", "caption": "pkl"}, "its caption is encoded as 'pkl'"),
    ],
)
def test_columns_that_do_not_serve_are_named(tmp_path: Path, columns: dict[str, str], reason: str) -> None:
    source = open_mds(str(write_mds(tmp_path, columns, [dict.fromkeys(columns, b"x")])))
    with pytest.raises(CorruptSampleError, match=reason):
        source.read(0)


def test_a_default_caption_serves_where_no_column_is_one(tmp_path: Path) -> None:
    write_mds(tmp_path, {"image": "png"}, [{"image": picture(n)} for n in range(4)])
    [batch] = batches_of(part("mds", tmp_path, default_caption="a picture"), 1)
    assert batch.captions == ("a picture",) * 4
    with feed_of(part("mds", tmp_path)) as feed, pytest.raises(DataError, match="none of 4 samples"):
        next(feed)
    assert {sample.reason for sample in feed.report().unreadable} == {"has no caption"}


def test_what_is_no_mds_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is not a folder"):
        open_mds(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"holds no index\.json"):
        open_mds(str(tmp_path))
    for content, rule in (("{}", "is not an MDS index"), ('{"shards": []}', "lists no samples")):
        (tmp_path / "index.json").write_text(content)
        with pytest.raises(DataError, match=rule):
            open_mds(str(tmp_path))
    write_mds(tmp_path, COLUMNS, samples(1))
    values = json.loads((tmp_path / "index.json").read_text())
    values["shards"][0]["raw_data"]["basename"] = "../../etc/passwd"
    (tmp_path / "index.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match="is not an MDS index"):
        open_mds(str(tmp_path))


def compressed(folder: Path) -> Path:
    write_mds(folder, COLUMNS, samples(2))
    values = json.loads((folder / "index.json").read_text())
    values["shards"][0]["zip_data"] = {"basename": "shard.00000.mds.zstd", "bytes": 1, "hashes": {}}
    (folder / "index.json").write_text(json.dumps(values))
    return folder


def test_compressed_and_remote_ones_ask_for_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "streaming", None)
    for path in (str(compressed(tmp_path)), "s3://bucket/folder"):
        with pytest.raises(NotFoundError, match="pip install --no-deps mosaicml-streaming"):
            open_mds(path)


class StandInDataset:
    """Answers as the package's StreamingDataset does."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.num_samples = 3

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 2:
            raise OSError("the bucket is on fire")
        return (
            {"image": Image.new("RGB", (5, 4)), "caption": f" picture {index} "} if index else {"sound": b""}
        )


def test_the_package_brings_samples_by_number(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    package = ModuleType("streaming")
    package.StreamingDataset = StandInDataset  # type: ignore[attr-defined]  # a module made on the spot
    monkeypatch.setitem(sys.modules, "streaming", package)
    source = open_mds("s3://bucket/folder")
    assert isinstance(source, StreamedMds)
    settings = source._dataset.settings
    assert (settings["remote"], settings["shuffle"]) == ("s3://bucket/folder", False)
    assert settings["local"].startswith(str(cache))
    assert len(source) == 3
    assert source.read(1).caption == "picture 1"
    assert source.size_of(1) == (4, 5)
    for index, reason in ((0, "has no image; its columns are sound"), (2, "the bucket is on fire")):
        with pytest.raises(CorruptSampleError, match=reason):
            source.read(index)
