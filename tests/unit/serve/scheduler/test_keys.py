"""API keys: shown once, let in until revoked, bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError, RequestError
from calotype.serve.api_keys import FILE_NAME, ApiKeys, server_keys
from calotype.serve.auth import Access, UnknownClientError
from calotype.serve.service import QueueFullError, UnavailableError
from calotype.serve.settings import ServeSettings


def test_a_key_lets_its_client_in_and_no_other(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "deployment")
    ann, bob = keys.create("ann"), keys.create("bob")
    assert (keys.check(ann), keys.check(bob)) == ("ann", "bob")
    swapped = f"{ann.rsplit('-', 1)[0]}-{bob.split('-', 2)[2]}"
    cut, longer = ann[:-1], f"{ann}x"
    for wrong in (
        "",
        "-",
        "--",
        "calotype--",
        swapped,
        cut,
        longer,
        ann.upper(),
        ann.removeprefix("calotype"),
        "\ud800",
    ):
        assert keys.check(wrong) is None, wrong


def test_the_file_tells_nobody_the_key(tmp_path: Path) -> None:
    token = ApiKeys(tmp_path).create("ann")
    path = tmp_path / FILE_NAME
    assert token.split("-", 2)[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    again = ApiKeys(tmp_path)
    assert again.check(token) == "ann"
    assert [key.name for key in again.all()] == ["ann"]


def test_a_running_server_hears_of_new_and_revoked_keys(tmp_path: Path) -> None:
    server, command = ApiKeys(tmp_path), ApiKeys(tmp_path)
    token = command.create("ann")
    assert server.check(token) == "ann"
    command.revoke("ann")
    assert server.check(token) is None
    with pytest.raises(NotFoundError, match="no key 'ann'"):
        server.revoke("ann")
    renewed = command.create("ann")
    assert (server.check(token), server.check(renewed)) == (None, "ann")


def test_revoking_the_last_key_lets_nobody_in(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    access = Access(ServeSettings(), keys)
    assert access.caller(None).name == "local"
    token = keys.create("ann")
    assert access.caller(token).name == "ann"
    keys.revoke("ann")
    for nobody in (None, token):
        with pytest.raises(UnknownClientError):
            access.caller(nobody)
    assert access.caller(keys.create("bob")).name == "bob"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ann", "a key 'ann' exists"),
        ("local", "is the name of clients without a key"),
        ("../x", "not a usable name"),
        ("", "empty"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, name: str, says: str) -> None:
    keys = ApiKeys(tmp_path)
    keys.create("ann")
    with pytest.raises(RequestError, match=says):
        keys.create(name)


def test_bounds_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="pictures_per_minute: 0 is out of range; it must be at least 1"):
        ApiKeys(tmp_path).create("ann", pictures_per_minute=0)


def test_a_damaged_file_stops_a_start_and_not_a_running_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(tmp_path)
    token = keys.create("ann")
    (tmp_path / FILE_NAME).write_text("{")
    assert keys.check(token) == "ann"
    assert "cannot be read" in caplog.text
    with pytest.raises(UnavailableError, match="cannot be read"):
        ApiKeys(tmp_path)


@pytest.mark.parametrize("lost", [None, b"", b"{", b'{"keys": []}'], ids=["gone", "empty", "torn", "no key"])
def test_a_running_server_keeps_its_keys_when_the_file_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: bytes | None
) -> None:
    path = tmp_path / FILE_NAME
    token = ApiKeys(tmp_path).create("ann", max_queued=3)
    server = server_keys("one", tmp_path, None)
    access, kept = Access(ServeSettings(), server), path.read_bytes()
    path.unlink() if lost is None else path.write_bytes(lost)
    assert (access.caller(token).name, server.max_queued("ann")) == ("ann", 3)
    with pytest.raises(UnknownClientError):
        access.caller(None)
    assert str(path) in str(access.keys_problem)
    assert "the keys that were read last stay valid" in caplog.text
    path.write_bytes(kept)
    assert (access.keys_problem, access.caller(token).name) == (None, "ann")
    path.unlink()
    renewed = ApiKeys(tmp_path).create("bob")
    assert (server.check(renewed), server.check(token)) == ("bob", None)


def test_a_key_file_that_was_never_readable_closes_a_running_server(tmp_path: Path) -> None:
    access = Access(ServeSettings(), server_keys("one", tmp_path, None))
    assert access.caller(None).name == "local"
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.raises(UnknownClientError):
        access.caller(None)
    assert "every request is refused" in str(access.keys_problem)
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(UnknownClientError):
        access.caller(None)


@pytest.mark.parametrize("lost", [None, b'{"keys": []}'], ids=["gone", "no key"])
def test_a_start_without_the_keys_that_there_were_is_refused(tmp_path: Path, lost: bytes | None) -> None:
    data, secret = tmp_path / "one", tmp_path / "secret"
    token = ApiKeys(secret).create("ann")
    assert server_keys("one", data, secret).check(token) == "ann"
    with pytest.raises(RequestError, match=f"one/keys.json is missing.*start with `--keys {secret}`"):
        server_keys("one", data, None)
    (secret / FILE_NAME).unlink() if lost is None else (secret / FILE_NAME).write_bytes(lost)
    with pytest.raises(RequestError, match=r"keys_folder: .*keys\.json (is missing|holds no key)"):
        server_keys("one", data, secret)
    own = ApiKeys(data).create("bob")
    assert server_keys("one", data, None).check(own) == "bob"


def test_a_key_that_was_made_before_the_first_start_counts(tmp_path: Path) -> None:
    ApiKeys(tmp_path).create("ann")
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(RequestError, match="calotype keys create NAME --deployment one"):
        server_keys("one", tmp_path, None)


def test_a_folder_for_keys_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"file/keys\.json cannot be read: .*Not a directory"):
        server_keys("one", tmp_path, tmp_path / "file")


def test_pictures_a_minute(tmp_path: Path) -> None:
    now = 100.0
    keys = ApiKeys(tmp_path, monotonic=lambda: now)
    keys.create("ann", pictures_per_minute=6)
    keys.create("bob", max_queued=3)
    keys.spend("ann", 6)
    with pytest.raises(QueueFullError) as refused:
        keys.spend("ann", 2)
    assert refused.value.retry_after_s == pytest.approx(20)
    now += refused.value.retry_after_s
    keys.spend("ann", 2)
    keys.refund("ann", 1)
    keys.spend("ann", 1)
    with pytest.raises(RequestError, match="7 images at once, the limit of 'ann' is 6 a minute"):
        keys.spend("ann", 7)
    now += 100_000
    keys.spend("ann", 6)
    with pytest.raises(QueueFullError):
        keys.spend("ann", 1)
    keys.spend("bob", 1000)
    assert (keys.max_queued("bob"), keys.max_queued("ann"), keys.max_queued("local")) == (3, None, None)
