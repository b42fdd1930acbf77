"""Files named by their content: whole, shared, and not taken away from under somebody."""

from __future__ import annotations

from pathlib import Path

from calotype.serve.queue.files import PictureFiles, name_of, named


def test_what_is_held_is_not_removed(tmp_path: Path) -> None:
    files = PictureFiles(tmp_path)
    files.write(named([b"cat", b"dog"]))
    cat, dog = name_of(b"cat"), name_of(b"dog")
    with files.held([cat]):
        with files.held([cat, dog]):
            files.remove([cat, dog])
        files.remove([cat, dog, "never there"])
        assert files.names() == [cat]
        assert files.read(cat) == b"cat"
    files.remove([cat])
    assert files.names() == []


def test_the_same_content_is_one_file(tmp_path: Path) -> None:
    files = PictureFiles(tmp_path)
    files.write(named([b"cat"]))
    before = (tmp_path / name_of(b"cat")).stat()
    files.write(named([b"cat", b"cat"]))
    assert (tmp_path / name_of(b"cat")).stat().st_ino == before.st_ino
