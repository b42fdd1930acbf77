"""Old pickles that are broken or hostile: refused by file and rule, nothing run, nothing left behind."""

import os
import pickle
import struct
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from calotype.core.errors import ModelFileError
from calotype.models.files.open import open_tensors
from calotype.models.files.pickle_child.sandbox import SandboxLimits
from calotype.models.files.pickle_sandbox import convert_pickle
from calotype.models.files.safe_open import open_model_file
from tests.unit.models.files.specimens import (
    FOUR_FLOATS,
    Storage,
    Tensor,
    add_members,
    flip_byte,
    patch_directory,
    pickled,
    torch_zip,
)


class Touch:
    """Unpickled by pickle itself, this would run a command that leaves a file."""

    def __init__(self, canary: Path, function: Callable[..., object] = os.system) -> None:
        self.canary = canary
        self.function = function

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return self.function, (f"touch {self.canary}",)


def rule_for(path: Path, conversions: Path) -> str:
    """Open the file, expect a refusal, and check that no copy or partial copy is left."""
    with pytest.raises(ModelFileError) as caught:
        open_tensors(path)
    assert caught.value.file == str(path)
    assert [left for left in conversions.rglob("*") if left.is_file()] == []
    return caught.value.rule


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "raw"])
@pytest.mark.parametrize(
    "function", [os.system, eval, subprocess.getoutput], ids=["system", "eval", "subprocess"]
)
def test_a_reduce_that_runs_a_command_is_refused(
    tmp_path: Path, conversions: Path, as_zip: bool, function: Callable[..., object]
) -> None:
    path, canary = tmp_path / "evil.ckpt", tmp_path / "canary"
    torch.save(
        {"w": torch.ones(2), "x": Touch(canary, function)}, path, _use_new_zipfile_serialization=as_zip
    )
    rule = rule_for(path, conversions)
    assert "its pickle names" in rule
    assert function.__name__ in rule
    assert "nothing was run" in rule
    assert not canary.exists()


def test_a_plain_pickle_that_runs_a_command_is_refused(tmp_path: Path, conversions: Path) -> None:
    path, canary = tmp_path / "evil.pt", tmp_path / "canary"
    path.write_bytes(pickle.dumps(Touch(canary), protocol=4))
    assert "posix.system" in rule_for(path, conversions)
    assert not canary.exists()


def test_a_command_hidden_behind_torchs_magic_number_is_refused(tmp_path: Path, conversions: Path) -> None:
    path, canary = tmp_path / "evil.pt", tmp_path / "canary"
    torch.save({}, path, _use_new_zipfile_serialization=False)
    for position in (15, 21, 137):
        hidden = path.read_bytes()[:position] + pickle.dumps(Touch(canary), protocol=2)
        (tmp_path / "hidden.pt").write_bytes(hidden)
        assert "posix.system" in rule_for(tmp_path / "hidden.pt", conversions)
    assert not canary.exists()


def test_an_unknown_class_is_refused_by_name(tmp_path: Path, conversions: Path) -> None:
    path = tmp_path / "whole_model.pt"
    torch.save(torch.nn.Linear(1, 1), path)
    assert "'torch.nn.modules.linear.Linear', which is not on the list of harmless names" in rule_for(
        path, conversions
    )


GLOBAL_DICT = b"ccollections\nOrderedDict\n"
SHARED_LISTS = b"".join(b"q\0](" + b"h\0" * 10 + b"e" for _ in range(12))


def placed(storage: object = Storage(), **changes: object) -> bytes:
    return pickled({"w": Tensor(storage, **changes)})


def stored(**changes: object) -> bytes:
    return placed(Storage(**changes))


PICKLES = {
    "a known name's attribute": (b"\x80\x04\x8c\x05torch\x8c\x0cload.__doc__\x93.", "'torch.load.__doc__'"),
    "torch.load itself": (b"\x80\x02ctorch\nload\n.", "'torch.load'"),
    "changing a class": (
        b"\x80\x02" + GLOBAL_DICT + b"N}X\x06\0\0\0updateNs\x86b.",
        "is malformed (TypeError",
    ),
    "changing a function": (
        b"\x80\x02ctorch._utils\n_rebuild_tensor\nN}X\x09\0\0\0_describeNs\x86b.",
        "tries to change a function's _describe",
    ),
    "extension code": (b"\x80\x02\x82\x01.", "malformed (ValueError"),
    "text persistent id": (b"\x80\x02P0\n.", "not a torch storage"),
    "cut short": (pickled({"w": Tensor()})[:-20], "its pickle is damaged"),
    "not a pickle": (b"hello", "its pickle is damaged"),
    "no tensors": (pickled({"a": 1, "b": "text"}), "holds no tensors"),
    "a storage without tensor": (pickled({"w": Storage()}), "holds no tensors"),
    "memo of 2^28 entries": (b"\x80\x02Nr\xff\xff\xff\x0f.", "more than the allowed 2147483648 bytes"),
    "refers to itself": (b"\x80\x02]q\0h\0a.", "is nested more than 32 deep"),
    "shared a billion times": (b"\x80\x02]" + SHARED_LISTS + b".", "holds more than 500000 values"),
    "key with __class__": (pickled({"a": {"__class__": Tensor()}}), "Python-internal part such as __class__"),
    "one name twice": (pickled({"a.b": Tensor(), "a": {"b": Tensor()}}), "would have the name 'a.b'"),
    "storage longer than the file": (stored(items=5), "has 16 bytes, but 5 items of F32"),
    "storage shorter than the file": (stored(items=3), "has 16 bytes, but 3 items of F32"),
    "storage of another type": (stored(kind=torch.DoubleStorage), "but 4 items of F64"),
    "storage of text length": (stored(items="4"), "but '4' items"),
    "storage that is not there": (stored(key="7"), "its storage '7' is not in the file"),
    "storage key not text": (stored(key=7), "names a storage by 7"),
    "storage of another class": (stored(kind=torch.device), "of class a type"),
    "storage described twice": (pickled([Tensor(), Tensor(Storage(items=2))]), "in two different ways"),
    "no storage": (placed("bytes"), "it has no storage or no dtype"),
    "past its storage": (placed(shape=(2, 3)), "it reaches to byte 20 of a storage of 16 bytes"),
    "offset past its storage": (placed(offset=1), "reaches to byte 20"),
    "stride past its storage": (placed(strides=(2**40, 1)), "reaches to byte"),
    "negative stride": (placed(offset=3, strides=(-2, 1)), "are not whole numbers from 0"),
    "negative offset": (placed(offset=-1), "are not whole numbers from 0"),
    "negative shape": (placed(shape=(-2, -2)), "are not whole numbers from 0"),
    "boolean shape": (placed(shape=(True, 2)), "are not whole numbers from 0"),
    "huge stride": (placed(strides=(2**70, 1)), "are not whole numbers from 0"),
    "shape overflow": (placed(shape=(2**40, 2**40), strides=(0, 0)), "overflows"),
    "fewer strides than sizes": (placed(strides=(1,)), "or do not match"),
    "expanded beyond reason": (placed(shape=(2**35,), strides=(0,)), "would take 137438953"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_bad_pickles_are_refused_with_file_and_rule(tmp_path: Path, conversions: Path, case: str) -> None:
    pickle_bytes, rule = PICKLES[case]
    assert rule in rule_for(torch_zip(tmp_path / "bad.ckpt", pickle_bytes), conversions)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (torch.eye(3).to_sparse(), "holds a sparse tensor; only dense tensors are read"),
        (
            torch.sparse_coo_tensor(torch.tensor([[0, 99]]), torch.ones(2), (3,), check_invariants=False),
            "sparse",
        ),
        (torch.zeros(2, device="meta"), "holds a meta tensor without values"),
        (torch.ones(2, dtype=torch.complex64).conj(), "conjugated or negated lazily"),
        (torch.ones(2, dtype=torch.complex128), "ComplexDoubleStorage"),
        (np.ones(3), "holds no tensors"),
    ],
    ids=["sparse", "sparse with bad indices", "meta", "conj", "complex128", "numpy"],
)
def test_tensors_that_are_not_plain_values_are_refused(
    tmp_path: Path, conversions: Path, value: object, rule: str
) -> None:
    torch.save({"w": value}, tmp_path / "odd.pt")
    assert rule in rule_for(tmp_path / "odd.pt", conversions)


GOOD = pickled({"w": Tensor()})


def bomb(path: Path) -> Path:
    """A few kilobytes that declare 40 GB: ten deflated members of almost 4 GiB of zeros each."""
    torch_zip(path, GOOD, {str(n): bytes(1000) for n in range(8)}, zipfile.ZIP_DEFLATED)
    return patch_directory(path, 24, struct.pack("<I", 0xFFFF0000))


def big_endian(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", GOOD)
        archive.writestr("a/byteorder", b"big")
    return path


def office_document(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", b"<w/>")
    return path


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-30])
    return path


ARCHIVES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "40 GB of deflated zeros": (bomb, "its zip members declare 42949017600 bytes in a file of"),
    "compressed": (
        lambda p: torch_zip(p, GOOD, None, zipfile.ZIP_LZMA),
        "is compressed; torch never compresses",
    ),
    "bad CRC of a storage": (
        lambda p: flip_byte(torch_zip(p, GOOD), p.read_bytes().index(FOUR_FLOATS)),
        "storage '0' is damaged: its CRC is",
    ),
    "bad CRC of the pickle": (
        lambda p: flip_byte(torch_zip(p, GOOD), p.read_bytes().index(GOOD) + 30),
        "data.pkl is damaged: its CRC is",
    ),
    "two data.pkl": (
        lambda p: add_members(torch_zip(p, GOOD), {"other/data.pkl": GOOD}),
        "has 2 members named data.pkl: 'archive/data.pkl, other/data.pkl'",
    ),
    "leaving its folder": (
        lambda p: add_members(torch_zip(p, GOOD), {"archive/../../x": b""}),
        "has a path that could leave its folder",
    ),
    "absolute": (lambda p: add_members(torch_zip(p, GOOD), {"/etc/x": b""}), "could leave its folder"),
    "backslash": (lambda p: add_members(torch_zip(p, GOOD), {"a\\x": b""}), "could leave its folder"),
    "encrypted": (lambda p: patch_directory(torch_zip(p, GOOD), 8, b"\x01\x08"), "is encrypted"),
    "directory that lies": (
        lambda p: patch_directory(torch_zip(p, GOOD), 42, b"\x05\0\0\0"),
        "not where the archive",
    ),
    "TorchScript": (
        lambda p: add_members(torch_zip(p, GOOD), {"archive/constants.pkl": b""}),
        "a TorchScript program",
    ),
    "big-endian": (lambda p: big_endian(torch_zip(p, GOOD)), "its byte order is b'big'"),
    "no data.pkl": (office_document, "without data.pkl, so torch.save did not write it"),
    "cut short": (lambda p: cut(torch_zip(p, GOOD)), "is a damaged zip archive: File is not a zip file"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_bad_archives_are_refused_with_file_and_rule(tmp_path: Path, conversions: Path, case: str) -> None:
    make, rule = ARCHIVES[case]
    assert rule in rule_for(make(tmp_path / "bad.ckpt"), conversions)


def test_duplicate_members_are_refused(tmp_path: Path, conversions: Path) -> None:
    path = torch_zip(tmp_path / "bad.ckpt", GOOD)
    with pytest.warns(UserWarning, match="Duplicate name"):
        add_members(path, {"archive/data/0": bytes(16)})
    assert "has two zip members named 'archive/data/0'" in rule_for(path, conversions)
    with pytest.warns(UserWarning, match="Duplicate name"):
        add_members(torch_zip(path, GOOD), {"archive/data.pkl": GOOD})
    assert "has two zip members named 'archive/data.pkl'" in rule_for(path, conversions)


def raw_file(path: Path) -> bytes:
    torch.save({"w": torch.arange(4.0)}, path, _use_new_zipfile_serialization=False)
    return path.read_bytes()


RAW: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no magic number": (lambda _: pickle.dumps({"a": 1}, protocol=2), "torch's magic number is missing"),
    "other protocol": (lambda raw: raw.replace(b"M\xe9\x03.", b"M\xe8\x03."), "its legacy protocol is 1000"),
    "big-endian": (lambda raw: raw.replace(b"\x88", b"\x89", 1), "was written on a big-endian machine"),
    "2 bytes missing": (lambda raw: raw[:-2], "but the file has"),
    "trailing bytes": (lambda raw: raw + b"xyz", "its storages end at byte"),
    "no storages": (lambda raw: raw[: -16 - 8], "it is truncated"),
    "storage shorter than declared": (
        lambda raw: raw[: -16 - 8] + struct.pack("<q", 3) + raw[-16:-4],
        "has 3 items, but its tensors declare 4",
    ),
    "negative storage": (lambda raw: raw[: -16 - 8] + struct.pack("<q", -4) + raw[-16:], "has -4 items"),
    "unlisted storage": (
        lambda raw: raw[: raw.rindex(b"]q")] + pickle.dumps([], protocol=2)[2:],
        "its list of storages is not the list its tensors refer to",
    ),
    "cut in the pickle": (lambda raw: raw[:200], "its pickle is damaged"),
}


@pytest.mark.parametrize("case", RAW)
def test_bad_raw_pickles_are_refused_with_file_and_rule(tmp_path: Path, conversions: Path, case: str) -> None:
    path = tmp_path / "bad.pth"
    change, rule = RAW[case]
    path.write_bytes(change(raw_file(path)))
    assert rule in rule_for(path, conversions)


def test_a_pickle_that_breaks_its_reader_is_refused(tmp_path: Path, conversions: Path) -> None:
    # Hashing a million nested tuples overflows the C stack on most versions of Python.
    nested = b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."
    assert rule_for(torch_zip(tmp_path / "deep.ckpt", nested), conversions)


@pytest.mark.parametrize(
    ("cpu_s", "wall_s", "rule"),
    [
        (1, 300, "takes more than the allowed 1 seconds of CPU time"),
        (300, 1, "takes longer than the allowed 1 seconds"),
    ],
)
def test_a_pickle_that_computes_for_too_long_is_stopped(
    tmp_path: Path, cpu_s: int, wall_s: int, rule: str
) -> None:
    # Keys with one and the same hash make a dictionary quadratic: this one takes minutes.
    keys = b"".join(b"\x8a\x0c" + (n * (2**61 - 1)).to_bytes(12, "little") + b"N" for n in range(1, 200_000))
    path = torch_zip(tmp_path / "slow.ckpt", b"\x80\x02}(" + keys + b"u.")
    limits = SandboxLimits(memory_bytes=2**31, cpu_s=cpu_s, wall_s=wall_s, output_bytes=2**20)
    begun = time.monotonic()
    with open_model_file(path) as opened, pytest.raises(ModelFileError, match=rule) as caught:
        convert_pickle(opened, tmp_path / "out", limits=limits)
    assert caught.value.file == str(path)
    assert time.monotonic() - begun < 30
    assert list(tmp_path.iterdir()) == [path]
