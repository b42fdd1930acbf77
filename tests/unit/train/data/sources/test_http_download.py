"""Shards over HTTP, from a server that cuts lines, refuses and changes its mind."""

import socket
from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError, OfflineError
from calotype.train.data.bad_samples import DataError
from calotype.train.data.sources import http_download
from calotype.train.data.sources.http_download import fetch
from tests.unit.train.data.specimens import batches_of, fill_shards, keys_of, part
from tests.unit.train.data.together import together
from tests.unit.train.data.web_server import Script, serving

CONTENT = bytes(range(256)) * 40


def test_a_file_is_fetched_once(cache: Path) -> None:
    with serving(Script(CONTENT)) as server:
        path = fetch(f"{server.url}/a.tar")
        assert path.read_bytes() == CONTENT
        assert path.name.endswith("-a.tar")
        assert fetch(f"{server.url}/a.tar") == path
        assert len(server.asked) == 1
    assert [file for file in (cache / "downloads").iterdir() if not file.name.startswith(".")] == [path]


def test_a_line_cut_half_way_is_taken_up_where_it_broke() -> None:
    with serving(Script(CONTENT, ["half", "half", "whole"])) as server:
        assert fetch(f"{server.url}/a.tar").read_bytes() == CONTENT
        half, three_quarters = len(CONTENT) // 2, len(CONTENT) * 3 // 4
        assert [asked for _, asked in server.asked] == [None, f"bytes={half}-", f"bytes={three_quarters}-"]


def test_a_later_run_goes_on_from_what_an_earlier_one_got(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Script(CONTENT, ["half", 503, "whole"])) as server:
        monkeypatch.setattr(http_download, "MAX_TRIES", 2)
        with pytest.raises(OfflineError, match="The received part is kept"):
            fetch(f"{server.url}/a.tar")
        assert fetch(f"{server.url}/a.tar").read_bytes() == CONTENT
        assert server.asked[-1][1] == f"bytes={len(CONTENT) // 2}-"


def test_a_file_that_changed_meanwhile_is_fetched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two halves of different files must never become one."""
    monkeypatch.setattr(http_download, "MAX_TRIES", 1)
    with serving(Script(CONTENT, ["half", "whole"])) as server:
        url = f"{server.url}/a.tar"
        with pytest.raises(OfflineError):
            fetch(url)
        server.content, server.tag = CONTENT[::-1], '"v2"'
        assert fetch(url).read_bytes() == CONTENT[::-1]
        assert [asked for _, asked in server.asked] == [None, f"bytes={len(CONTENT) // 2}-"]


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_sure_sign_of_the_version_it_starts_again(tag: str | None) -> None:
    with serving(Script(CONTENT, ["half", "whole"], tag=tag)) as server:
        assert fetch(f"{server.url}/a.tar").read_bytes() == CONTENT
        assert [asked for _, asked in server.asked] == [None, None]


def test_a_server_that_knows_no_ranges_or_refuses_them_still_gives_the_file() -> None:
    with serving(Script(CONTENT, ["half", "no_ranges"])) as server:
        assert fetch(f"{server.url}/a.tar").read_bytes() == CONTENT
    with serving(Script(CONTENT, ["half", 416, "whole"])) as server:
        assert fetch(f"{server.url}/a.tar").read_bytes() == CONTENT


def test_a_server_in_trouble_is_asked_again_but_not_for_ever() -> None:
    with serving(Script(CONTENT, [503, 429, "whole"])) as server:
        assert fetch(f"{server.url}/a.tar").read_bytes() == CONTENT
    with serving(Script(CONTENT, [503])) as server:
        with pytest.raises(
            OfflineError, match=rf"{server.url}/a\.tar could not be downloaded in 5 tries.*HTTP 503"
        ):
            fetch(f"{server.url}/a.tar")
        assert len(server.asked) == 5


def test_what_is_not_there_is_not_asked_for_twice() -> None:
    with serving(Script(CONTENT, [404])) as server:
        with pytest.raises(NotFoundError, match=rf"{server.url}/gone\.tar: the server answers 404"):
            fetch(f"{server.url}/gone.tar")
        assert len(server.asked) == 1


def test_nobody_at_the_other_end_names_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/a.tar"
    with pytest.raises(OfflineError, match=rf"{url} could not be downloaded in 5 tries.*refused"):
        fetch(url)


def test_a_cache_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written: .*; set CALOTYPE_CACHE elsewhere"):
        fetch("http://127.0.0.1:1/a.tar")


def test_processes_that_want_the_same_file_fetch_it_once() -> None:
    with serving(Script(CONTENT * 100)) as server:
        together(["tests.unit.train.data.fetcher", f"{server.url}/a.tar"], 4)
        assert len(server.asked) == 1


def test_training_reads_shards_from_the_web_as_from_the_disk(tmp_path: Path) -> None:
    [path] = fill_shards(tmp_path, 6, 6)
    with serving(Script(path.read_bytes(), ["half", "whole"])) as server:
        remote = part("shards", f"{server.url}/s-{{0..1}}.tar", shuffle=False)
        names = [key.partition(":")[2] for key in keys_of(batches_of(remote, 3))]
        assert names == [f"s{number:03d}" for number in range(6)] * 2
    assert len(keys_of(batches_of(remote, 3))) == 12
