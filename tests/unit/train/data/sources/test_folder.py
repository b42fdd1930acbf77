"""A folder of pictures: where captions may be, and what is said when something is missing."""

import json
from pathlib import Path

import pytest

from calotype.core.errors import NotFoundError
from calotype.train.data.bad_samples import CorruptSampleError, DataError
from calotype.train.data.sources.folder import FolderSource
from tests.unit.train.data.specimens import fill_folder, picture


def captions(source: FolderSource) -> dict[str, str | None]:
    samples = [source.read(index) for index in range(len(source))]
    return {sample.key: sample.caption for sample in samples}


def put(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(number))
    return folder


def test_pictures_are_found_at_every_depth_in_one_order(tmp_path: Path) -> None:
    put(tmp_path, "b.PNG", "a/z.jpg", "a/c/y.webp", "c.jpeg", ".hidden.png", ".trash/x.png")
    for name in ("b.txt", "a/z.txt", "a/c/y.txt", "c.txt"):
        (tmp_path / name).write_text(f" caption of {name}\n", encoding="utf-8")
    (tmp_path / "notes.pdf").write_bytes(b"no picture")
    assert list(captions(FolderSource(tmp_path)).items()) == [
        ("a/c/y.webp", "caption of a/c/y.txt"),
        ("a/z.jpg", "caption of a/z.txt"),
        ("b.PNG", "caption of b.txt"),
        ("c.jpeg", "caption of c.txt"),
    ]


def test_folders_elsewhere_are_linked_in_and_none_is_gone_round_twice(tmp_path: Path) -> None:
    here, cats, dogs = (tmp_path / name for name in ("here", "cats", "dogs"))
    put(here, "hen.png")
    put(cats, "tom.png")
    put(dogs, "rex.png")
    for folder, name in ((here, "hen.png"), (cats, "tom.png"), (dogs, "rex.png")):
        (folder / "metadata.jsonl").write_text(json.dumps({"file_name": name, "text": f"{folder.name}!"}))
    (here / "mine").symlink_to(cats)
    # Back to where it began, at once and by way of another.
    (here / "again").symlink_to(here)
    (cats / "foes").symlink_to(dogs)
    (dogs / "foes").symlink_to(cats)
    wanted = {"hen.png": "here!", "mine/tom.png": "cats!", "mine/foes/rex.png": "dogs!"}
    source = FolderSource(here)
    assert captions(source) == wanted
    assert source.damage == ()


def test_captions_from_metadata_as_hugging_face_writes_it(tmp_path: Path) -> None:
    put(tmp_path, "cat.png", "train/dog.png")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "cat.png", "text": "eine Katze"}\n\n')
    (tmp_path / "train" / "metadata.jsonl").write_text(
        '{"file_name": "dog.png", "caption": "a dog", "n": 1}\n'
    )
    assert captions(FolderSource(tmp_path)) == {"cat.png": "eine Katze", "train/dog.png": "a dog"}


def test_a_mark_that_an_editor_put_before_the_text_is_no_part_of_it(tmp_path: Path) -> None:
    put(tmp_path, "cat.png", "dog.png", "hen.png")
    (tmp_path / "cat.txt").write_text("a cat", encoding="utf-8-sig")
    line = '{"file_name": "dog.png", "text": "a dog"}'
    (tmp_path / "metadata.jsonl").write_text(line, encoding="utf-8-sig")
    (tmp_path / "captions.json").write_text('{"hen.png": "a hen"}', encoding="utf-8-sig")
    wanted = {"cat.png": "a cat", "dog.png": "a dog", "hen.png": "a hen"}
    assert captions(FolderSource(tmp_path)) == wanted


def test_a_line_of_metadata_ends_where_json_lines_do(tmp_path: Path) -> None:
    """Captions from the web hold characters that some programs take for the end of a line."""
    put(tmp_path, "cat.png")
    said = "a cat\u2028on a mat\u0085again"
    line = json.dumps({"file_name": "cat.png", "text": said}, ensure_ascii=False)
    (tmp_path / "metadata.jsonl").write_text(f"{line}\r\n", encoding="utf-8")
    assert captions(FolderSource(tmp_path)) == {"cat.png": said}


@pytest.mark.parametrize(
    "content",
    [
        {"cat.png": "a cat", "train/dog.png": "a dog"},
        [{"file_name": "cat.png", "text": "a cat"}, {"file_name": "train/dog.png", "text": "a dog"}],
    ],
)
def test_captions_from_one_json_file(tmp_path: Path, content: object) -> None:
    put(tmp_path, "cat.png", "train/dog.png")
    (tmp_path / "captions.json").write_text(json.dumps(content))
    assert captions(FolderSource(tmp_path)) == {"cat.png": "a cat", "train/dog.png": "a dog"}


def test_the_file_beside_the_picture_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "cat.png")
    (tmp_path / "captions.json").write_text('{"cat.png": "from the list"}')
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "cat.png", "text": "from metadata"}')
    assert captions(FolderSource(tmp_path)) == {"cat.png": "from metadata"}
    (tmp_path / "cat.txt").write_text("from beside")
    assert captions(FolderSource(tmp_path)) == {"cat.png": "from beside"}


def test_a_caption_without_its_picture_is_reported(tmp_path: Path) -> None:
    put(tmp_path, "cat.png")
    (tmp_path / "captions.json").write_text('{"cat.png": "a cat", "gone.png": "a ghost"}')
    assert [str(found) for found in FolderSource(tmp_path).damage] == [
        "gone.png: has a caption, but the image does not exist"
    ]


@pytest.mark.parametrize(
    ("file", "content", "rule"),
    [
        (
            "metadata.jsonl",
            '{"file_name": "a.png", "text": "x"}\nnonsense\n',
            r"metadata.jsonl, line 2: is not JSON",
        ),
        ("metadata.jsonl", '{"name": "a.png"}', r"line 1: should be an object like"),
        ("captions.json", '{"a.png": 3}', "should map names to captions"),
        ("captions.json", "[3]", "entry 0: should be an object like"),
        ("captions.json", b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_a_list_that_cannot_be_read_names_the_place(
    tmp_path: Path, file: str, content: str | bytes, rule: str
) -> None:
    put(tmp_path, "a.png")
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rule):
        FolderSource(tmp_path)


def test_folders_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere does not exist"):
        FolderSource(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match="is a file, not a folder"):
        FolderSource(tmp_path / "file")
    with pytest.raises(DataError, match=r"holds no images; looked for \.png"):
        FolderSource(tmp_path)
    put(tmp_path, "a.png", "b.png")
    with pytest.raises(DataError, match="has 2 images and no caption for any"):
        FolderSource(tmp_path)
    assert len(FolderSource(tmp_path, captions_needed=False)) == 2


def test_what_cannot_be_read_is_one_sample_s_trouble(tmp_path: Path) -> None:
    fill_folder(tmp_path, 3)
    (tmp_path / "p000.txt").write_bytes(b"\xff\xff")
    (tmp_path / "p001.png").unlink()
    (tmp_path / "p001.png").symlink_to(tmp_path / "gone")
    source = FolderSource(tmp_path)
    with pytest.raises(CorruptSampleError, match=r"p000\.txt is not UTF-8"):
        source.read(0)
    with pytest.raises(CorruptSampleError, match=r"p001\.png: cannot be read: No such file"):
        source.read(1)
    assert source.size_of(1) is None
    assert source.read(2).caption == "picture 2"


def test_identity_changes_with_the_pictures(tmp_path: Path) -> None:
    fill_folder(tmp_path, 3)
    before = FolderSource(tmp_path).identity
    assert FolderSource(tmp_path).identity == before
    fill_folder(tmp_path, 4)
    assert FolderSource(tmp_path).identity != before
