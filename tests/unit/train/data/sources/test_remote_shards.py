"""Shards that stay on a web server or in object storage: the same batches, whatever ranks, cache, faults."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from calotype.core.errors import NotFoundError, RequestError
from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.bad_samples import DataError
from calotype.train.data.sources import http_download
from calotype.train.data.sources.remote_index import write_index
from tests.unit.train.data.folder_server import Served, serving_folder
from tests.unit.train.data.mds_writer import write_mds
from tests.unit.train.data.specimens import batches_of, fill_shards, keys_of, part, picture, same

COUNT, PER_SHARD = 24, 3


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_download, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Tar shards with their index."""
    folder = tmp_path / "far"
    shards = fill_shards(folder, COUNT, PER_SHARD)
    assert write_index(shards, folder / "index.json") == COUNT
    with serving_folder(folder) as server:
        yield server


def test_shards_of_one_name_get_no_index(tmp_path: Path) -> None:
    """It would lead to one of them twice, and a training would find that out after many downloads."""
    shards = [*fill_shards(tmp_path / "cats", 2, 2), *fill_shards(tmp_path / "dogs", 2, 2)]
    assert len({shard.name for shard in shards}) < len(shards)
    with pytest.raises(RequestError, match=r"cats/.* and .*dogs/.* have the same name.*; rename one of them"):
        write_index(shards, tmp_path / "index.json")
    assert not (tmp_path / "index.json").exists()


def room_for(folder: Path, num_shards: int, pattern: str = "*.tar") -> float:
    """So many gigabytes."""
    return num_shards * max(path.stat().st_size for path in folder.glob(pattern)) / 1e9


def streamed(served: Served, num_shards: int = 5, **changes: Any) -> DataConfig:
    room = room_for(served.folder, num_shards)
    return part("shards", f"{served.url}/index.json", cache_gb=room, shuffle_shards=2, **changes)


def cached_bytes(cache: Path) -> int:
    return sum(path.stat().st_size for path in (cache / "shards").glob("*/*") if path.suffix == ".tar")


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_any_number_of_ranks_and_workers_sees_the_same(
    served: Served, world_size: int, num_workers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    total = 16  # micro-batches of 3: two epochs
    alone = batches_of(streamed(served), total, micro=3)
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "another"))
    data = streamed(served, 9, num_workers=num_workers)
    ranks = [
        batches_of(data, total // world_size, micro=3, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    together = [batch for turn in zip(*ranks, strict=True) for batch in turn]
    assert all(same(one, other) for one, other in zip(alone, together, strict=True))
    assert sorted(set(keys_of(alone[:8]))) == sorted(keys_of(alone[:8]))
    assert len(keys_of(alone[:8])) == COUNT


def test_a_resumed_run_goes_on_in_the_middle(served: Served) -> None:
    whole = batches_of(streamed(served), 12, micro=2)
    rest = batches_of(streamed(served), 7, micro=2, samples_seen=10)
    assert all(same(one, other) for one, other in zip(whole[5:], rest, strict=True))


def test_the_limit_holds_and_the_pictures_are_those_of_a_local_set(served: Served, cache: Path) -> None:
    batches = batches_of(streamed(served), 32, micro=3)
    assert cached_bytes(cache) <= room_for(served.folder, 5) * 1e9
    assert max(served.asked.values()) > 1, "eight shards do not fit into room for five"
    local = batches_of(part("shards", served.folder, shuffle=False), COUNT // 3, micro=3)
    known = {key: batch.pixels[row] for batch in local for row, key in enumerate(batch.keys)}  # type: ignore[index]
    for batch in batches:
        for row, key in enumerate(batch.keys):
            assert batch.pixels is not None
            assert bool((batch.pixels[row] == known[key]).all())


def test_faults_on_the_way_change_nothing(served: Served, tmp_path: Path) -> None:
    names = sorted(path.name for path in served.folder.glob("*.tar"))
    for name, fault in zip(names, ("cut", "wrong", "busy", "cut"), strict=False):
        served.faults[name] = [fault]
    spoilt = keys_of(batches_of(streamed(served), 8, micro=3))
    assert spoilt == keys_of(batches_of(streamed(served), 8, micro=3))
    assert len(set(spoilt)) == COUNT


def test_lanes_keep_ranks_apart(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    for rank in range(2):
        monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / f"node-{rank}"))
        served.asked.clear()
        batches_of(streamed(served, lanes=2), 4, micro=3, rank=rank, world_size=2)
        asked.append({name for name in served.asked if name.endswith(".tar")})
    assert not asked[0] & asked[1]
    assert len(asked[0] | asked[1]) == COUNT // PER_SHARD


def test_mds_is_streamed_too(tmp_path: Path, cache: Path) -> None:
    samples = [{"image": picture(n), "caption": f"picture {n}".encode()} for n in range(COUNT)]
    folder = write_mds(tmp_path / "far", {"image": "png", "caption": "str"}, samples, PER_SHARD)
    local = batches_of(part("mds", folder, shuffle=False), 6)
    with serving_folder(folder) as served:
        room = room_for(folder, 5, "*.mds")
        far = batches_of(part("mds", served.url, shuffle=False, cache_gb=room), 6)
    assert all(same(one, other) for one, other in zip(local, far, strict=True))
    assert sum(p.stat().st_size for p in (cache / "shards").glob("*/*.mds")) <= room * 1e9


@pytest.mark.parametrize(
    ("path", "changes", "told"),
    [
        ("shard-{000000..000007}.tar", {}, "is not an index, which data.cache_gb needs.*calotype data index"),
        ("index.json", {"cache_gb": 1e-6}, r"too small: this node's 1 workers hold up to 4 .*set .*e-05"),
        ("index.json", {"buckets": True}, "remove data.cache_gb"),
    ],
)
def test_what_cannot_work_is_refused_before_it_begins(
    served: Served, path: str, changes: dict[str, Any], told: str
) -> None:
    data = part("shards", f"{served.url}/{path}", **{"cache_gb": 1.0, **changes})
    with pytest.raises(RequestError, match=told):
        batches_of(data, 1)


def test_an_index_that_tells_another_number_is_found_out(served: Served) -> None:
    index = served.folder / "index.json"
    index.write_text(index.read_text(encoding="utf-8").replace('"nsamples": 3', '"nsamples": 4', 1))
    with pytest.raises(DataError, match="holds 3 samples, the index says 4; make the index again"):
        batches_of(streamed(served), 11, micro=3)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """A server that speaks S3, with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "who",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }.items():
            patched.setenv(name, value)
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield client
        client.close()
        server.stop()


def test_object_storage_gives_what_a_web_server_gives(bucket: Any, served: Served, cache: Path) -> None:
    for file in served.folder.iterdir():
        bucket.put_object(Bucket="bucket", Key=f"set/{file.name}", Body=file.read_bytes())
    web = batches_of(streamed(served), 8, micro=3)
    data = streamed(served).model_copy(update={"path": "s3://bucket/set/index.json"})
    assert all(same(one, other) for one, other in zip(web, batches_of(data, 8, micro=3), strict=True))
    assert cached_bytes(cache) <= room_for(served.folder, 5) * 1e9

    # Without a limit all of them are fetched at the start, and the order is that of a local set.
    everything = part("shards", "s3://bucket/set/shard-{000000..000007}.tar")
    local = batches_of(part("shards", served.folder), 8, micro=3)
    fetched = batches_of(everything, 8, micro=3)
    assert [batch.captions for batch in fetched] == [batch.captions for batch in local]

    with pytest.raises(NotFoundError, match=r"s3://bucket/set/none\.json: .*check data.path and your cred"):
        batches_of(data.model_copy(update={"path": "s3://bucket/set/none.json"}), 1)


def test_an_object_that_changes_half_way_is_fetched_anew(bucket: Any, tmp_path: Path) -> None:
    old, new = b"old " * 300, b"new " * 300
    bucket.put_object(Bucket="bucket", Key="one.tar", Body=new)
    path = tmp_path / "one.tar"
    # As a try leaves it that broke off while the object was another.
    path.with_name("one.tar.part").write_bytes(old[:500])
    path.with_name("one.tar.part.validator").write_text('"of the old one"')
    http_download.fetch_to("s3://bucket/one.tar", path)
    assert path.read_bytes() == new
    # And one that broke off and did not change goes on.
    tag = bucket.head_object(Bucket="bucket", Key="one.tar")["ETag"]
    path.rename(tmp_path / "one.tar.part")
    (tmp_path / "one.tar.part").write_bytes(b"OLD " * 125)
    (tmp_path / "one.tar.part.validator").write_text(tag)
    http_download.fetch_to("s3://bucket/one.tar", path)
    assert path.read_bytes() == b"OLD " * 125 + new[500:]
