"""Files named by their content: whole, shared, and not taken away from under somebody."""

from __future__ import annotations

from pathlib import Path

import pytest

from calotype.serve.queue.blob_store import BlobStore, DamagedFileError, blob_name, is_blob_name


def test_what_is_held_is_not_removed(tmp_path: Path) -> None:
    files = BlobStore(tmp_path)
    files.write(is_blob_name([b"cat", b"dog"]))
    cat, dog = blob_name(b"cat"), blob_name(b"dog")
    with files.contains([cat]):
        with files.contains([cat, dog]):
            files.remove([cat, dog])
        files.remove([cat, dog, "never there"])
        assert files.names() == [cat]
        assert files.read(cat) == b"cat"
    files.remove([cat])
    assert files.names() == []


def test_the_same_content_is_one_file(tmp_path: Path) -> None:
    files = BlobStore(tmp_path)
    files.write(is_blob_name([b"cat"]))
    before = (tmp_path / blob_name(b"cat")).stat()
    files.write(is_blob_name([b"cat", b"cat"]))
    assert (tmp_path / blob_name(b"cat")).stat().st_ino == before.st_ino


def test_a_damaged_file_is_not_read_and_is_written_anew_with_the_same_content(tmp_path: Path) -> None:
    files = BlobStore(tmp_path)
    files.write(is_blob_name([b"cat", b"dog"]))
    cat = tmp_path / blob_name(b"cat")
    for damaged in (b"cut", b"ca", b""):
        assert files.read(cat.name) == b"cat"
        cat.write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(DamagedFileError, match="damaged"):
                files.read(cat.name)
        assert files.read(blob_name(b"dog")) == b"dog"
        files.write(is_blob_name([b"cat"]))
    assert files.read(cat.name) == b"cat"


def test_a_file_damaged_while_no_server_runs_is_found_too(tmp_path: Path) -> None:
    BlobStore(tmp_path).write(is_blob_name([b"cat"]))
    (tmp_path / blob_name(b"cat")).write_bytes(b"cut")
    later = BlobStore(tmp_path)
    with pytest.raises(DamagedFileError):
        later.read(blob_name(b"cat"))
    later.write(is_blob_name([b"cat"]))
    assert later.read(blob_name(b"cat")) == b"cat"


def test_the_hash_is_computed_once_for_a_file_that_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BlobStore(tmp_path)
    cat = blob_name(b"cat")
    files.write(is_blob_name([b"cat"]))
    hashed: list[bytes] = []

    def counted(data: bytes) -> str:
        hashed.append(data)
        return blob_name(data)

    monkeypatch.setattr("calotype.serve.queue.blob_store.blob_name", counted)
    assert [files.read(cat) for _ in range(5)] == [b"cat"] * 5
    assert hashed == [b"cat"]
    (tmp_path / cat).write_bytes(b"cat")
    assert [files.read(cat) for _ in range(5)] == [b"cat"] * 5
    assert hashed == [b"cat"] * 2, "a file that was written over is checked again"
