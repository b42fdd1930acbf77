"""A cache of limited size that processes share: nothing half, wrong, twice, or lost while it is in use."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from calotype.core.errors import OfflineError, RequestError
from calotype.train.data.bad_samples import DataError
from calotype.train.data.sources import http_download
from calotype.train.data.sources.node_cache import NodeCache, RemoteFile
from tests.unit.train.data.folder_server import Served, serving_folder
from tests.unit.train.data.together import together

SIZE = 1000


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_download, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(http_download, "MAX_TRIES", 3)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "far"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.tar").write_bytes(bytes([number]) * SIZE)
    with serving_folder(folder) as server:
        yield server


def remote(served: Served, number: int) -> RemoteFile:
    digest = hashlib.sha256(bytes([number]) * SIZE).hexdigest()
    return RemoteFile(f"{served.url}/{number}.tar", SIZE, ("sha256", digest))


def use(cache: NodeCache, file: RemoteFile) -> bytes:
    lease = cache.lease(file)
    try:
        return lease.path.read_bytes()
    finally:
        lease.close()


def on_disk(cache: NodeCache) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in cache.folder.glob("*/*") if not p.name.startswith(".")}


def test_the_longest_unused_makes_room(served: Served, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "near", 3 * SIZE)
    for number in (0, 1, 2, 0, 3):
        assert use(cache, remote(served, number)) == bytes([number]) * SIZE
        assert sum(on_disk(cache).values()) <= 3 * SIZE
    assert set(on_disk(cache)) == {"0.tar", "2.tar", "3.tar"}
    assert served.asked == {"0.tar": 1, "1.tar": 1, "2.tar": 1, "3.tar": 1}


def test_what_is_being_read_stays(served: Served, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "near", 2 * SIZE)
    first, second = cache.lease(remote(served, 0)), cache.lease(remote(served, 1))
    with pytest.raises(DataError, match=r"data\.cache_gb: 2e-06 GB are too few.*2\.tar takes 1e-06 more"):
        cache.lease(remote(served, 2))
    assert first.path.read_bytes() == bytes([0]) * SIZE
    first.close()
    cache.lease(remote(served, 2)).close()
    assert set(on_disk(cache)) == {"1.tar", "2.tar"}
    second.close()


@pytest.mark.parametrize("faults", [["cut"], ["wrong"], ["busy", "cut"], ["wrong", "busy"]])
def test_what_arrives_broken_is_asked_for_again(served: Served, tmp_path: Path, faults: list[str]) -> None:
    served.faults["1.tar"] = list(faults)
    assert use(NodeCache(tmp_path / "near", 9 * SIZE), remote(served, 1)) == bytes([1]) * SIZE
    assert served.asked["1.tar"] == len(faults) + 1


@pytest.mark.parametrize(("fault", "told"), [("wrong", "its sha256 is"), ("busy", "HTTP 503")])
def test_what_never_arrives_whole_is_never_used(
    served: Served, tmp_path: Path, fault: str, told: str
) -> None:
    served.faults["1.tar"] = [fault] * 3
    cache = NodeCache(tmp_path / "near", 9 * SIZE)
    with pytest.raises(OfflineError, match=f"3 tries, the last failed with: .*{told}"):
        cache.lease(remote(served, 1))
    assert "1.tar" not in on_disk(cache)
    assert use(cache, remote(served, 1)) == bytes([1]) * SIZE


def test_a_file_that_lost_its_end_is_fetched_anew(served: Served, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "near", 9 * SIZE)
    lease = cache.lease(remote(served, 1))
    lease.close()
    lease.path.write_bytes(b"short")
    assert use(cache, remote(served, 1)) == bytes([1]) * SIZE


def test_what_a_killed_download_left_takes_no_room(served: Served, tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "near", SIZE)
    left = cache.folder / ("0" * 24)
    left.mkdir(parents=True)
    (left / "x.tar.part").write_bytes(b"x" * 900)
    with (left / "x.tar.reserved").open("wb") as hole:
        hole.truncate(SIZE)
    assert use(cache, remote(served, 1)) == bytes([1]) * SIZE
    assert set(on_disk(cache)) == {"1.tar"}


def test_a_name_cannot_lead_out_of_the_cache(served: Served, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not a usable name"):
        NodeCache(tmp_path / "near", SIZE).lease(RemoteFile(f"{served.url}/a/..", SIZE))


def use_by_processes(number: int, folder: Path, url: str, rounds: int) -> None:
    """All at once, each going round the files; none may ever see one that is not whole, or too many."""
    words = [str(folder), url, str(SIZE), str(rounds)]
    together(["tests.unit.train.data.cache_user", *words], number)


def test_processes_share_it(served: Served, tmp_path: Path) -> None:
    """Two at once over a cache that holds three of five: whoever fetches, both read whole files."""
    use_by_processes(2, tmp_path / "near", served.url, rounds=40)


def test_one_fetches_while_others_wait(served: Served, tmp_path: Path) -> None:
    use_by_processes(4, tmp_path / "near", served.url, rounds=1)
    assert served.asked == {"0.tar": 1}
