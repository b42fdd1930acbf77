"""Random damage to good files: refused by name, or read exactly as others read it. Never anything else."""

import struct
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save

from calotype.core.errors import ModelFileError
from calotype.models.files.open import open_tensors
from calotype.models.files.pickle_sandbox import convert_pickle
from calotype.models.files.safe_open import open_model_file
from calotype.models.files.safetensors_reader import open_safetensors
from tests.unit.models.files.specimens import FOUR_FLOATS, Tensor, pickled, torch_zip

WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b.c": torch.arange(3, dtype=torch.int16)}
GOOD = save(WEIGHTS, metadata={"format": "pt"})
HEADER_BYTES = 8 + struct.unpack("<Q", GOOD[:8])[0]

reproducible = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def changes(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 255)), min_size=1, max_size=4)


def changed(content: bytes, edits: list[tuple[int, int]]) -> bytes:
    result = bytearray(content)
    for position, value in edits:
        result[position] = value
    return bytes(result)


@reproducible
@given(edits=changes(HEADER_BYTES))
def test_a_damaged_header_is_refused_or_read_as_the_library_reads_it(edits: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        path.write_bytes(changed(GOOD, edits))
        try:
            reader = open_safetensors(path)
        except ModelFileError:
            return
        with reader, safe_open(path, "pt") as theirs:
            assert set(reader) == set(theirs.keys())
            for name in reader:
                ours, expected = reader.read(name), theirs.get_tensor(name)
                assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
                assert ours.nbytes == 0 or torch.equal(
                    ours.view(-1).view(torch.uint8), expected.view(-1).view(torch.uint8)
                )


@reproducible
@given(content=st.binary(max_size=600))
def test_random_bytes_are_judged_without_a_crash(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.ckpt"
        path.write_bytes(content)
        with suppress(ModelFileError):
            open_model_file(path).close()


def small_archive() -> bytes:
    with TemporaryDirectory() as folder:
        path = torch_zip(Path(folder) / "m.ckpt", pickled({"w": Tensor()}))
        return path.read_bytes()


ARCHIVE = small_archive()


@settings(reproducible, max_examples=60)
@given(edits=changes(len(ARCHIVE)))
def test_a_damaged_archive_is_refused_or_gives_the_same_tensors(edits: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        path, target = Path(folder) / "m.ckpt", Path(folder) / "out"
        path.write_bytes(changed(ARCHIVE, edits))
        try:
            with open_model_file(path) as opened:
                convert_pickle(opened, target)
        except ModelFileError:
            assert list(Path(folder).iterdir()) == [path]
            return
        with open_tensors(target) as tensors:
            assert list(tensors) == ["w"]
            assert tensors.read("w").numpy().tobytes() == FOUR_FLOATS
