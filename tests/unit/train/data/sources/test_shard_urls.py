"""What a user may write for many shards."""

from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError, RequestError
from calotype.train.data.sources.shard_urls import expand_braces, local_shards


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("a-{8..11}.tar", ["a-8.tar", "a-9.tar", "a-10.tar", "a-11.tar"]),
        ("a-{000..000}.tar", ["a-000.tar"]),
        ("{x,y}/a.tar", ["x/a.tar", "y/a.tar"]),
        ("{0..1}{a,b}", ["0a", "0b", "1a", "1b"]),
        ("http://h/{0..1}.tar?x=1", ["http://h/0.tar?x=1", "http://h/1.tar?x=1"]),
    ],
)
def test_braces_are_spelled_out(pattern: str, expanded: list[str]) -> None:
    assert expand_braces(pattern) == expanded


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("a-{3..1}.tar", r"runs backwards; write \{1\.\.3\}"),
        ("a-{000-099}.tar", "neither a range like"),
        ("a-{0..9.tar", "braces do not match"),
        ("a-0..9}.tar", "braces do not match"),
        ("{{0..1}}", "braces do not match"),
        ("a-{0..99999999}.tar", "more than 1000000"),
        ("{0..9999}{0..999}", "names 10000000 shards, the limit is 1000000"),
    ],
)
def test_braces_that_make_no_sense_are_refused(pattern: str, rule: str) -> None:
    with pytest.raises(RequestError, match=rule):
        expand_braces(pattern)


def test_wildcards_and_folders_name_what_is_there(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in local_shards(str(tmp_path))] == ["a.tar", "b.tar"]
    assert [path.name for path in local_shards(f"{tmp_path}/?.tar")] == ["a.tar", "b.tar"]
    with pytest.raises(NotFoundError, match="names no shard"):
        local_shards(f"{tmp_path}/*.zip")


def test_missing_shards_are_named(tmp_path: Path) -> None:
    (tmp_path / "s-0.tar").touch()
    with pytest.raises(NotFoundError, match=r"2 of 3 shards do not exist: .*s-1\.tar, .*s-2\.tar"):
        local_shards(f"{tmp_path}/s-{{0..2}}.tar")
