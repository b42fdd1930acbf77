"""Tar shards: written the same every time, read in any order, and every damage found."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from calotype.train.data.bad_samples import CorruptSampleError, DataError
from calotype.train.data.sources import tar_index
from calotype.train.data.sources.tar_index import Scan, scan_tar
from calotype.train.data.sources.webdataset import WebDatasetSource
from calotype.train.data.sources.webdataset_writer import Packed, write_shards
from tests.open_files import open_below
from tests.unit.train.data.specimens import fill_shards, packed, picture


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def cut(path: Path, size_bytes: int) -> Path:
    path.write_bytes(path.read_bytes()[:size_bytes])
    return path


def trouble(source: WebDatasetSource) -> dict[str, str]:
    """What the index and each sample have to complain of."""
    found = {sample.name: sample.reason for sample in source.damage}
    for index in range(len(source)):
        try:
            source.read(index)
        except CorruptSampleError as error:
            found[error.name] = error.reason
    return found


def test_two_builds_are_identical_to_the_byte(tmp_path: Path) -> None:
    first, second = (write_shards(tmp_path / name, packed(7), 3) for name in "ab")
    assert [path.name for path in first] == ["shard-000000.tar", "shard-000001.tar", "shard-000002.tar"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    turned = [Packed(sample.key, dict(reversed(list(sample.members.items())))) for sample in packed(7)]
    third = write_shards(tmp_path / "c", turned, 3)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in third]
    with tarfile.open(first[2]) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["s006.png", "s006.txt"]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}


def test_the_writer_refuses_what_readers_would_misread(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot contain a dot"):
        write_shards(tmp_path / "a", [Packed("v1.5/cat.small", {"png": b""})], 2)
    with pytest.raises(DataError, match="is the key of two samples"):
        write_shards(tmp_path / "a", [Packed("cat", {"png": b""})] * 2, 2)
    assert list((tmp_path / "a").iterdir()) == []
    fill_shards(tmp_path / "b", 2, 2)
    with pytest.raises(DataError, match=r"already holds 1 shards named shard, such as shard-000000\.tar"):
        fill_shards(tmp_path / "b", 2, 2)


def test_samples_are_read_in_any_order(tmp_path: Path) -> None:
    source = WebDatasetSource(fill_shards(tmp_path, 7, 3))
    assert len(source) == 7
    for index in (6, 0, 3, 2, 3):
        sample = source.read(index)
        assert sample.key == f"shard-00000{index // 3}.tar:s{index:03d}"
        assert sample.caption == f"picture {index}"
        assert sample.picture == picture(index)
        assert source.size_of(index) == (16, 16)
    source.close()
    assert source.read(1).caption == "picture 1"


def test_members_need_not_lie_together_and_captions_may_be_json(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "a.tar",
        {
            "x/1.png": picture(1),
            "x/2.JPG": picture(2, kind="JPEG"),
            "x/2.json": json.dumps({"caption": "two"}).encode(),
            "x/1.caption": b"one\n",
            "x/1.json": json.dumps({"caption": "not this"}).encode(),
            "x/._1.png": b"what some systems put beside",
            "readme.md": b"no sample",
        },
    )
    source = WebDatasetSource([path])
    assert [(sample.key, sample.caption) for sample in map(source.read, range(2))] == [
        ("a.tar:x/1", "one"),
        ("a.tar:x/2", "two"),
    ]
    assert source.damage == ()


def test_a_mark_before_the_text_is_no_part_of_a_caption(tmp_path: Path) -> None:
    members = {
        "1.png": picture(1),
        "1.txt": "one".encode("utf-8-sig"),
        "2.png": picture(2),
        "2.json": '{"caption": "two"}'.encode("utf-8-sig"),
    }
    source = WebDatasetSource([write_tar(tmp_path / "a.tar", members)])
    assert [sample.caption for sample in map(source.read, range(2))] == ["one", "two"]


def test_json_may_list_several_captions(tmp_path: Path) -> None:
    sayings: dict[str, object] = {
        "0": {"caption": "a cat", "captions": ["a cat", "cat, sitting "]},
        "1": {"caption": "a dog", "captions": []},
        "2": {"caption": "an owl", "captions": {"en": "an owl"}},
        "3": {"caption": "a fox", "captions": ["a fox", " "]},
    }
    members = {f"{key}.json": json.dumps(values).encode() for key, values in sayings.items()}
    path = write_tar(tmp_path / "a.tar", members | {f"{key}.png": picture() for key in sayings})
    source = WebDatasetSource([path])
    read = [source.read(index) for index in range(4)]
    assert [sample.captions for sample in read] == [("a cat", "cat, sitting"), (), (), ()]
    assert [sample.caption for sample in read] == ["a cat", "a dog", "an owl", "a fox"]


def test_latents_come_as_npy_or_safetensors(tmp_path: Path) -> None:
    latents, context = torch.randn(4, 2, 2), torch.randn(5, 6)
    npy = io.BytesIO()
    np.save(npy, latents.numpy())
    members = {
        "a.npy": npy.getvalue(),
        "a.txt": b"plain",
        "b.safetensors": save({"latents": latents, "context": context}),
        "c.npy": pickle.dumps("harmful"),
        "d.npy": npy.getvalue()[:90],
        "e.safetensors": b"",
        "f.png": picture(),
    }
    source = WebDatasetSource([write_tar(tmp_path / "l.tar", members)])
    plain, rich = source.read(0), source.read(1)
    assert plain.latents is not None
    assert torch.equal(plain.latents, latents)
    assert plain.caption == "plain"
    assert rich.context is not None
    assert torch.equal(rich.context, context)
    reasons = trouble(source)
    assert "neither .npy nor safetensors" in reasons["l.tar:c"]
    assert "cannot be read" in reasons["l.tar:d"]
    assert "0 bytes" in reasons["l.tar:e"]
    assert reasons["l.tar:f"] == "has no latents"


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._file,)


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    objects = io.BytesIO()
    np.save(objects, np.array([Harmful(tmp_path / "made")]), allow_pickle=True)
    source = WebDatasetSource([write_tar(tmp_path / "h.tar", {"a.npy": objects.getvalue()})])
    assert "cannot be read" in trouble(source)["h.tar:a"]
    assert not (tmp_path / "made").exists()


def test_the_index_is_made_once_and_again_when_the_shard_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = fill_shards(tmp_path / "a", 3, 3)
    [other] = fill_shards(tmp_path / "b", 5, 5)
    WebDatasetSource([path])
    scanned: list[Path] = []

    def noted(shard: Path) -> Scan:
        scanned.append(shard)
        return scan_tar(shard)

    monkeypatch.setattr(tar_index, "scan_tar", noted)
    assert WebDatasetSource([path]).read(2).caption == "picture 2"
    assert scanned == []
    path.write_bytes(other.read_bytes())
    assert len(WebDatasetSource([path])) == 5
    assert scanned == [path]


def test_an_index_that_was_damaged_is_made_again(tmp_path: Path, cache: Path) -> None:
    paths = fill_shards(tmp_path, 3, 3)
    WebDatasetSource(paths)
    [kept] = (cache / "shard-index").glob("*.safetensors")
    for content in (b"", b"rubbish", kept.read_bytes()[:-8]):
        kept.write_bytes(content)
        assert WebDatasetSource(paths).read(2).caption == "picture 2"


def test_a_shard_that_changes_during_a_run_stops_it(tmp_path: Path) -> None:
    [path] = fill_shards(tmp_path, 3, 3)
    source = WebDatasetSource([path])
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=r"shard-000000\.tar: changed since the run began"):
        source.read(0)


def test_a_copy_in_another_process_opens_its_own_files(tmp_path: Path) -> None:
    source = WebDatasetSource(fill_shards(tmp_path, 3, 1))
    source.read(0)
    copy = pickle.loads(pickle.dumps(source))
    source.close()
    assert copy.read(0).caption == "picture 0"
    copy.close()


def test_only_so_many_shards_are_open_at_once(tmp_path: Path) -> None:
    source = WebDatasetSource(fill_shards(tmp_path, 12, 1))
    source._files._most_open = 3
    for index in range(12):
        source.read(index)
    assert len(open_below(tmp_path)) == 3
    source.close()
    assert open_below(tmp_path) == []


def test_a_shard_cut_off_in_a_member_loses_that_sample_by_name(tmp_path: Path) -> None:
    [path] = fill_shards(tmp_path, 3, 3)
    with tarfile.open(path) as archive:
        last = archive.getmember("s002.png")
    source = WebDatasetSource([cut(path, last.offset_data + 20)])
    reasons = trouble(source)
    assert list(reasons) == [f"{path.name}:byte {last.offset_data + 20}", f"{path.name}:s002"]
    assert "cut off" in reasons[f"{path.name}:s002"]
    assert source.read(1).caption == "picture 1"
    assert source.size_of(2) is None


def test_every_way_of_cutting_a_shard_is_noticed(tmp_path: Path) -> None:
    """Whatever is missing, either the sample or the shard's end is reported, and the rest is read."""
    [path] = fill_shards(tmp_path / "whole", 2, 2)
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        end = archive.getmember("s001.txt").offset_data + 512
    for size in range(520, end + 1, 97):
        short = tmp_path / f"cut-{size}.tar"
        short.write_bytes(whole[:size])
        assert trouble(WebDatasetSource([short])), f"cut at {size} of {end} went unnoticed"


def test_rubbish_between_members_is_noticed(tmp_path: Path) -> None:
    [path] = fill_shards(tmp_path, 3, 3)
    with tarfile.open(path) as archive:
        header = archive.getmember("s001.png").offset
    content = bytearray(path.read_bytes())
    content[header : header + 100] = b"\xaa" * 100
    path.write_bytes(content)
    source = WebDatasetSource([path])
    assert len(source) == 1
    assert "no member begins where one should" in trouble(source)[f"{path.name}:byte {header}"]


def test_archives_stuck_together_and_repeated_members_are_noticed(tmp_path: Path) -> None:
    [first] = fill_shards(tmp_path / "a", 2, 2)
    glued = tmp_path / "glued.tar"
    glued.write_bytes(first.read_bytes() * 2)
    assert any(
        "follows the archive's end mark" in reason for reason in trouble(WebDatasetSource([glued])).values()
    )
    twice = write_tar(tmp_path / "t.tar", {"a.png": picture(1), "a.jpg": picture(2), "a.txt": b"a"})
    source = WebDatasetSource([twice])
    assert source.read(0).picture == picture(1)
    assert "another member for the same purpose" in trouble(source)["t.tar:a.jpg"]


def test_names_with_a_second_dot_are_told_and_not_dropped_in_silence(tmp_path: Path) -> None:
    dotted = {"x/photo.1.png": picture(), "x/photo.1.txt": b"one", "photo.2.PNG": picture()}
    more_about_one = {"a.png": picture(), "a.txt": b"a", "a.depth.png": picture(), "._a.b.png": b""}
    source = WebDatasetSource([write_tar(tmp_path / "t.tar", dotted | more_about_one)])
    assert len(source) == 1
    reason = "WebDataset takes everything after the first dot for the extension, which is unknown; rename it"
    assert trouble(source) == {"t.tar:x/photo.1.png": reason, "t.tar:photo.2.PNG": reason}
    with pytest.raises(DataError, match=r"holds no samples: .* first dot .*, as in x/photo\.1\.png"):
        WebDatasetSource([write_tar(tmp_path / "none.tar", dotted)])


def test_incomplete_samples_are_named(tmp_path: Path) -> None:
    members = {
        "a.txt": b"a caption alone",
        "b.png": picture(),
        "b.txt": b"\xff\xfe",
        "c.png": picture(),
        "c.json": b"{not json",
    }
    reasons = trouble(WebDatasetSource([write_tar(tmp_path / "t.tar", members)]))
    assert reasons["t.tar:a"] == "has no picture"
    assert "not UTF-8" in reasons["t.tar:b"]
    assert "its JSON cannot be read" in reasons["t.tar:c"]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is not a tar archive"),
        (b"surely not a tar" * 100, "is not a tar archive"),
        (b"\x1f\x8b" + bytes(600), "compressed with gzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "compressed with zstd"),
        (bytes(10240), "holds no samples"),
    ],
)
def test_what_is_no_shard_is_refused(tmp_path: Path, content: bytes, rule: str) -> None:
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.tar: .*{rule}"):
        WebDatasetSource([path])
