"""Opening: only regular files, judged by content, and read through the descriptor that was checked."""

import hashlib
import os
import socket
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from calotype.core.errors import ModelFileError, NotFoundError
from calotype.models.files.open import open_tensors
from calotype.models.files.safe_open import open_model_file
from calotype.models.files.sniff import FileKind
from tests.open_files import open_below
from tests.unit.models.files.specimens import safetensors_bytes


def refusal(path: Path, **options: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_model_file(path, **options)
    assert caught.value.file == str(path)
    return caught.value.rule


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.safetensors"
    os.mkfifo(fifo)
    assert refusal(fifo) == "is a FIFO (named pipe); a model must be a regular file"
    assert "is a directory" in refusal(tmp_path)
    assert "is a character device" in refusal(Path("/dev/zero"))
    with socket.socket(socket.AF_UNIX) as listener:
        address = tmp_path / "s"
        listener.bind(str(address))
        assert "cannot be opened as a regular file" in refusal(address)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"absent\.ckpt: there is no such file"):
        open_model_file(tmp_path / "absent.ckpt")


def test_a_name_with_nul_is_refused(tmp_path: Path) -> None:
    assert "cannot be opened" in refusal(tmp_path / "a\0b")


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(safetensors_bytes({}))
    link = models / "model.safetensors"
    link.symlink_to(secret)
    assert f"is a link to {secret}, which is outside {models}" in refusal(link, inside=models)
    with open_model_file(link, inside=tmp_path) as opened:
        assert opened.kind is FileKind.SAFETENSORS


def test_no_descriptor_is_left_open_by_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "page.ckpt").write_bytes(b"<!DOCTYPE html><html>")
    refusal(tmp_path / "page.ckpt")
    refusal(tmp_path)
    assert open_below(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "description"),
    [
        (b"", "is empty (0 bytes)"),
        (b"<!DOCTYPE html><html><body>404", "an HTML or XML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"GGUF\x03\x00\x00\x00\x00\x00", "a GGUF model"),
        (b"\0" * 600, "zero bytes only"),
        (b"cposix\nsystem\n(S'true'\ntR.", r"its first bytes are b'cposix\nsystem\n(S"),
        (b"abc", "its first bytes are b'abc'"),
    ],
)
def test_what_is_no_weight_file_is_described(tmp_path: Path, content: bytes, description: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert description in refusal(path)


def test_content_decides_the_kind_whatever_the_name(tmp_path: Path) -> None:
    weights = {"w": torch.arange(4.0)}
    save_file(weights, tmp_path / "really_safetensors.ckpt")
    torch.save(weights, tmp_path / "really_zip.safetensors")
    torch.save(weights, tmp_path / "really_raw.safetensors", _use_new_zipfile_serialization=False)
    found = {}
    for path in tmp_path.iterdir():
        with open_tensors(path) as tensors:
            assert torch.equal(tensors.read("w"), weights["w"])
            found[path.name] = tensors.kind
    assert found == {
        "really_safetensors.ckpt": FileKind.SAFETENSORS,
        "really_zip.safetensors": FileKind.TORCH_ZIP,
        "really_raw.safetensors": FileKind.TORCH_PICKLE,
    }


def test_a_header_length_that_looks_like_a_pickle_is_still_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes(b"{}".ljust(640)))
    assert path.read_bytes()[:2] == b"\x80\x02"
    with open_tensors(path) as tensors:
        assert list(tensors) == []


def test_a_legacy_tar_is_known_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(ModelFileError, match=r"old\.pt: is a torch checkpoint in the tar format"):
        open_tensors(path)


def test_digest_is_that_of_the_content_and_progress_adds_up(tmp_path: Path) -> None:
    class Counter:
        def __init__(self) -> None:
            self.total = self.seen = 0

        def start(self, label: str, total: int) -> None:
            assert label == "checking m"
            self.total = total

        def advance(self, amount: int = 1) -> None:
            self.seen += amount

        def describe(self, label: str) -> None:
            pass

    content = safetensors_bytes({"x": {"dtype": "U8", "shape": [9_000_000], "data_offsets": [0, 9_000_000]}})
    content += bytes(9_000_000)
    (tmp_path / "m").write_bytes(content)
    watcher = Counter()
    with open_model_file(tmp_path / "m") as opened:
        assert opened.sha256(watcher) == hashlib.sha256(content).hexdigest()
    assert watcher.seen == watcher.total == len(content)


def test_a_file_swapped_after_opening_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.zeros(4)}, path)
    save_file({"w": torch.ones(4)}, tmp_path / "other")
    with open_tensors(path) as tensors:
        os.replace(tmp_path / "other", path)  # noqa: PTH105 - the system call is what is meant
        assert torch.equal(tensors.read("w"), torch.zeros(4))


def test_a_file_written_to_after_opening_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.zeros(4)}, path)
    with open_tensors(path) as tensors:
        os.utime(path, ns=(1, 1))
        with pytest.raises(ModelFileError, match="was written to while it was being read"):
            tensors.read("w")


def test_a_file_cut_after_opening_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.zeros(4)}, path)
    with open_tensors(path) as tensors:
        os.truncate(path, path.stat().st_size - 2)
        with pytest.raises(ModelFileError, match="it is truncated"):
            tensors.read("w")
