"""The strict header check: each broken rule refused by file and rule, before a tensor byte is read."""

import struct
from pathlib import Path

import pytest

from calotype.core.errors import ModelFileError
from calotype.models.files.safe_open import OpenedFile, open_regular
from calotype.models.files.safetensors_header import read_header
from tests.unit.models.files.specimens import entry, safetensors_bytes

GOOD = {"a": entry(0, 8), "b": entry(8, 16)}
DATA = bytes(16)


def opened(tmp_path: Path, content: bytes) -> OpenedFile:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    return open_regular(path)


def one(**changes: object) -> bytes:
    return safetensors_bytes({"a": {**entry(0, 16), **changes}}, DATA)


BROKEN = {
    "empty file": (b"", "is empty (0 bytes)"),
    "shorter than a length": (b"\x10\0\0", "has 3 bytes; safetensors begin with an 8-byte header length"),
    "header length 2^63": (
        struct.pack("<Q", 2**63) + b"{}",
        "header of 9223372036854775808 bytes, the limit is 10",
    ),
    "header past the file": (
        struct.pack("<Q", 100) + b"{}",
        "declares a header of 100 bytes, but only 2 follow",
    ),
    "no header": (struct.pack("<Q", 0), "does not begin with '{'"),
    "not UTF-8": (safetensors_bytes(b'{"\xff\xfe": 1}'), "is not UTF-8 text (byte 2 is wrong)"),
    "not JSON": (safetensors_bytes(b"{hello}"), "its header is not JSON"),
    "not an object": (safetensors_bytes(b"[1, 2]"), "does not begin with '{' but with b'[1, 2]'"),
    "NaN": (safetensors_bytes(b'{"a": NaN}'), "NaN is not allowed"),
    "huge number": (safetensors_bytes(b'{"a": ' + b"9" * 5000 + b"}"), "its header is not JSON"),
    "deep nesting": (safetensors_bytes(b'{"a":' + b"[" * 250_000), "nested too deeply"),
    "duplicate keys": (
        safetensors_bytes(b'{"a": {"dtype":"F32"}, "b": 1, "a": {"dtype":"F32"}}'),
        "its header names 'a' more than once",
    ),
    "duplicate fields": (
        safetensors_bytes(b'{"a": {"dtype":"F32","dtype":"F16"}}'),
        "names 'dtype' more than once",
    ),
    "dunder key": (
        safetensors_bytes({"a.__class__.b": entry(0, 16)}, DATA),
        "Python-internal part such as __class__",
    ),
    "format key": (safetensors_bytes({"{0.__class__}": entry(0, 16)}, DATA), "Python-internal part"),
    "empty key": (safetensors_bytes({"": entry(0, 16)}, DATA), "a tensor has an empty name"),
    "control character": (safetensors_bytes({"a\x1b[2J": entry(0, 16)}, DATA), "holds control characters"),
    "lone surrogate": (safetensors_bytes({"\ud800": entry(0, 16)}, DATA), "holds control characters"),
    "long key": (
        safetensors_bytes({"k" * 1025: entry(0, 16)}, DATA),
        "has 1025 characters, the limit is 1024",
    ),
    "metadata number": (
        safetensors_bytes({"__metadata__": {"n": 1}}),
        "__metadata__ maps 'n' to 1; only text",
    ),
    "metadata list": (safetensors_bytes({"__metadata__": []}), "its __metadata__ is [], not an object"),
    "entry no object": (safetensors_bytes({"a": 7}), "must have exactly data_offsets, dtype, shape, not 7"),
    "unknown field": (one(extra=1), "must have exactly data_offsets, dtype, shape"),
    "deep entry": (safetensors_bytes(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"), "must have exactly"),
    "unknown dtype": (one(dtype="F31"), "tensor 'a': dtype 'F31' is unknown; known are U64, I64"),
    "dtype list": (one(dtype=["F32"]), "dtype ['F32'] is unknown"),
    "negative size": (one(shape=[-4]), "shape [-4] is not a list of at most 64 whole numbers"),
    "boolean size": (one(shape=[True, 4]), "shape [True, 4] is not a list"),
    "fractional size": (one(shape=[4.0]), "shape [4.0] is not a list"),
    "too many dimensions": (one(shape=[1] * 65), "is not a list of at most 64"),
    "shape overflow": (
        one(shape=[2**62, 4]),
        "overflows: 73786976294838206464 bytes, the limit is 9223372036854775807",
    ),
    "size beyond 64 bit": (one(shape=[2**64]), "whole numbers from 0 to 2**63"),
    "wrong length": (one(shape=[5]), "data_offsets [0, 16] span 16 bytes, but F32 [5] takes 20"),
    "offsets no integers": (
        one(data_offsets=["0", "16"]),
        "data_offsets ['0', '16'] are not two whole numbers",
    ),
    "three offsets": (one(data_offsets=[0, 8, 16]), "are not two whole numbers"),
    "reversed": (one(data_offsets=[16, 0]), "data_offsets [16, 0] are reversed"),
    "overlap": (
        safetensors_bytes({"a": entry(0, 8), "b": entry(4, 16)}, DATA),
        "tensors 'a' and 'b' overlap: one ends at data byte 8, the next begins at 4",
    ),
    "same bytes twice": (safetensors_bytes({"a": entry(0, 16), "b": entry(0, 16)}, DATA), "overlap"),
    "hole": (
        safetensors_bytes({"a": entry(0, 4), "b": entry(8, 16)}, DATA),
        "has a hole of 4 bytes before tensor 'b'",
    ),
    "hole at the start": (
        safetensors_bytes({"a": entry(4, 16)}, DATA),
        "has a hole of 4 bytes before tensor 'a'",
    ),
    "trailing bytes": (safetensors_bytes(GOOD, DATA + b"xyz"), "has 3 trailing bytes after its last tensor"),
    "bytes without tensors": (safetensors_bytes({}, b"xyz"), "has 3 trailing bytes"),
    "2 bytes missing": (
        safetensors_bytes(GOOD, DATA[:-2]),
        "tensor 'b' ends at data byte 16 of 14: 2 bytes are missing",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_headers_are_refused_with_file_and_rule(tmp_path: Path, case: str) -> None:
    content, rule = BROKEN[case]
    with opened(tmp_path, content) as file, pytest.raises(ModelFileError) as caught:
        read_header(file)
    assert caught.value.file == str(tmp_path / "bad.safetensors")
    assert rule in caught.value.rule
    assert len(caught.value.rule) < 400


def test_a_good_header_is_read_whole(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, **GOOD, "none": entry(8, 8, shape=[0, 3])}
    with opened(tmp_path, safetensors_bytes(header, DATA)) as file:
        result = read_header(file)
    assert list(result.tensors) == ["a", "b", "none"]
    assert (result.tensors["b"].dtype, result.tensors["b"].shape) == ("F32", (2,))
    assert (result.tensors["b"].start, result.tensors["b"].end) == (8, 16)
    assert result.metadata == {"format": "pt"}


@pytest.mark.parametrize(
    "name", ["string_to_param.*", "<cat-toy>", "lora_unet__down_0.weight", "a__b__", "größe"]
)
def test_names_of_real_files_are_kept(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, safetensors_bytes({name: entry(0, 16)}, DATA)) as file:
        assert list(read_header(file).tensors) == [name]
