"""Conversion of valid old pickles: the sandboxed process outputs exactly what torch saved."""

import os
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from calotype.core.errors import ModelFileError
from calotype.models.files.open import open_tensors
from calotype.models.files.pickle_child.sandbox import SandboxLimits
from calotype.models.files.pickle_sandbox import ConversionReport, convert_pickle
from calotype.models.files.safe_open import open_model_file
from calotype.models.files.sniff import FileKind
from tests.unit.models.files.specimens import FOUR_FLOATS, Tensor, add_members, pickled, torch_zip
from tests.unit.models.files.test_safetensors_reader import bits, random_tensors

both_formats = pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "raw"])


def saved(folder: Path, value: object, as_zip: bool = True) -> Path:
    path = folder / "model.ckpt"
    torch.save(value, path, _use_new_zipfile_serialization=as_zip)
    return path


def converted(path: Path) -> tuple[dict[str, torch.Tensor], ConversionReport]:
    target = path.with_suffix(".converted")
    with open_model_file(path) as opened:
        report = convert_pickle(opened, target)
    return load_file(target), report


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert torch.equal(bits(found[name]), bits(value))


@both_formats
def test_every_dtype_comes_out_as_torch_saved_it(tmp_path: Path, as_zip: bool) -> None:
    expected = random_tensors()
    found, report = converted(saved(tmp_path, expected, as_zip))
    assert_same(found, expected)
    assert report.tensors == len(expected)
    assert report.written_bytes == (tmp_path / "model.converted").stat().st_size
    assert set(report.protections) >= {"no_new_privs", "rlimits", "seccomp"}


@both_formats
def test_views_strides_and_shared_storage_come_out_as_values(tmp_path: Path, as_zip: bool) -> None:
    base = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(1))
    convolution = torch.randn(5, 7, 3, 3).to(memory_format=torch.channels_last)
    expected = {
        "base": base,
        "again": base,
        "slice": base[2:5, 1:3],
        "transposed": base.transpose(0, 2),
        "permuted": base.permute(1, 2, 0)[::2],
        "stepped": base[:, ::2, 1::2].half()[1:, :, :1],
        "channels_last": convolution,
        "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 9),
        "expanded_bytes": torch.tensor(7, dtype=torch.uint8).expand(3, 1, 4),
        "wide": torch.arange(12).reshape(3, 4).t(),
        "one": base[3, 2, 1],
        "parameter": torch.nn.Parameter(base[0].clone()),
    }
    assert_same(converted(saved(tmp_path, expected, as_zip))[0], expected)


@both_formats
def test_a_lightning_checkpoint_gives_its_state_dict_only(tmp_path: Path, as_zip: bool) -> None:
    layer = torch.nn.Linear(3, 2)
    checkpoint = {
        "epoch": 7,
        "global_step": np.int64(470000),
        "best": np.float64(0.5),
        "state_dict": layer.state_dict(),
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1e-4}]}],
        "lr_schedulers": [{"milestones": Counter([1, 2]), "device": torch.device("cpu"), "seen": {1, 2}}],
        "array": np.zeros(3),
        "note": b"bytes",
    }
    found, report = converted(saved(tmp_path, checkpoint, as_zip))
    assert_same(found, {"weight": layer.weight, "bias": layer.bias})
    assert "optimizer_states" in report.left_out
    assert "torch.device" in report.placeholders


def test_lightning_callbacks_are_placeholders(tmp_path: Path) -> None:
    name = b"cpytorch_lightning.callbacks.model_checkpoint\nModelCheckpoint\n"
    body = pickled({"callbacks": {"X": {"best_model_score": None}}, "state_dict": {"w": Tensor()}})
    path = torch_zip(tmp_path / "sd.ckpt", body.replace(b"X\x01\x00\x00\x00X", name))
    found, report = converted(path)
    assert found["w"].tolist() == [[1, 2], [3, 4]]
    assert report.placeholders == ("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",)
    assert report.left_out == ("callbacks",)


def test_a_textual_inversion_gives_its_embedding(tmp_path: Path) -> None:
    embedding = torch.randn(2, 768)
    for parameters in ({"*": embedding}, torch.nn.ParameterDict({"*": torch.nn.Parameter(embedding)})):
        value = {
            "string_to_token": {"*": torch.tensor(265)},
            "string_to_param": parameters,
            "name": "x",
            "step": 9,
        }
        found, report = converted(saved(tmp_path, value))
        assert_same(found, {"string_to_param.*": embedding})
        assert report.left_out == ("string_to_token", "name", "step")


def test_names_are_dotted_paths(tmp_path: Path) -> None:
    one = torch.ones(1)
    value: Any = {
        "net": OrderedDict(w=one),
        "list": [one, {"deep": (one,)}],
        768: one,
        "n": 3,
        "f": 0.5,
        "s": "x",
    }
    found, report = converted(saved(tmp_path, value))
    assert sorted(found) == ["768", "list.0", "list.1.deep.0", "net.w"]
    assert report.dropped_values == 3


def test_a_bare_tensor_and_tensors_with_attributes_are_read(tmp_path: Path) -> None:
    tensor, parameter = torch.arange(3.0), torch.nn.Parameter(torch.arange(4.0))
    assert_same(converted(saved(tmp_path, tensor))[0], {"tensor": tensor})
    tensor.note = parameter.note = "mine"  # type: ignore[attr-defined]  # torch allows it, its types do not
    assert_same(converted(saved(tmp_path, {"t": tensor, "p": parameter}))[0], {"t": tensor, "p": parameter})


def test_archives_of_old_torch_and_of_other_zip_tools_are_read(tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "model.pt", pickled({"w": Tensor()}), {})
    add_members(path, {"archive/data/": b"", "archive/data/0": FOUR_FLOATS, "archive/version": b"3\n"})
    assert converted(path)[0]["w"].tolist() == [[1, 2], [3, 4]]


def test_a_conversion_is_kept_and_used_again(tmp_path: Path, conversions: Path) -> None:
    weights = {"w": torch.arange(5.0)}
    path = saved(tmp_path, weights)
    with open_tensors(path) as first:
        digest = first.sha256()
        assert (first.path, first.kind) == (path, FileKind.TORCH_ZIP)
    (copy,) = (conversions / "converted").iterdir()
    assert copy.name == f"{digest}.safetensors"
    made = copy.stat().st_mtime_ns
    (tmp_path / "renamed.bin").write_bytes(path.read_bytes())
    with open_tensors(tmp_path / "renamed.bin") as second:
        assert torch.equal(second.read("w"), weights["w"])
        assert second.metadata["converted_from_sha256"] == digest
    assert copy.stat().st_mtime_ns == made


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_damaged_copy_is_made_again(tmp_path: Path, conversions: Path, damage: bytes | None) -> None:
    path = saved(tmp_path, {"w": torch.arange(5.0)})
    open_tensors(path).close()
    (copy,) = (conversions / "converted").iterdir()
    # None stands for a whole file that was made by other rules.
    copy.write_bytes(copy.read_bytes().replace(b'rules":"1"', b'rules":"0"') if damage is None else damage)
    with open_tensors(path) as tensors:
        assert tensors.read("w").tolist() == [0, 1, 2, 3, 4]
        assert tensors.metadata["conversion_rules"] == "1"


def test_a_cache_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path, conversions: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(5.0)})
    (conversions / "converted").write_text("in the way")
    with pytest.raises(
        ModelFileError, match=r"model\.ckpt: .*converted cannot be written: .*set CALOTYPE_CACHE"
    ):
        open_tensors(path)


def test_a_pickle_swapped_after_opening_changes_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.zeros(3)})
    with open_model_file(path) as opened:
        torch.save({"evil": torch.ones(3)}, tmp_path / "other")
        os.replace(tmp_path / "other", path)  # noqa: PTH105 - the system call is what is meant
        convert_pickle(opened, tmp_path / "out")
    assert_same(load_file(tmp_path / "out"), {"w": torch.zeros(3)})


class Watcher:
    """Progress that notes what it is told, and may stop the work when told a certain label."""

    def __init__(self, stop_at: str = "") -> None:
        self.labels: list[str] = []
        self._stop_at = stop_at

    def start(self, label: str, total: int) -> None:
        assert total > 0
        self.labels.append(label)
        if label == self._stop_at:
            raise KeyboardInterrupt

    def advance(self, amount: int = 1) -> None:
        assert amount >= 0

    def describe(self, label: str) -> None:
        pass


def test_progress_is_told_what_is_being_done(tmp_path: Path) -> None:
    watcher = Watcher()
    open_tensors(saved(tmp_path, {"w": torch.zeros(3)}), progress=watcher).close()
    assert watcher.labels == ["checking model.ckpt", "converting model.ckpt"]


def test_stopping_a_conversion_leaves_nothing_behind(tmp_path: Path, conversions: Path) -> None:
    path = saved(tmp_path, {"w": torch.zeros(3)})
    with pytest.raises(KeyboardInterrupt):
        open_tensors(path, progress=Watcher("converting model.ckpt"))
    assert list((conversions / "converted").iterdir()) == []


def test_a_conversion_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.zeros(3)})
    limits = SandboxLimits(memory_bytes=2**31, cpu_s=60, wall_s=0, output_bytes=2**20)
    with (
        open_model_file(path) as opened,
        pytest.raises(
            ModelFileError, match=r"model\.ckpt: is not converted: .* longer than the allowed 0 seconds"
        ),
    ):
        convert_pickle(opened, tmp_path / "out", limits=limits)
    assert list(tmp_path.iterdir()) == [path]


def test_safetensors_are_not_converted(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with (
        open_model_file(tmp_path / "m") as opened,
        pytest.raises(ModelFileError, match="is safetensors already"),
    ):
        convert_pickle(opened, tmp_path / "out")
