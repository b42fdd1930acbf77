"""`calotype profile` from end to end on the processor: a picture of the embedded model, training steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from calotype.bench.profile import annotations as annotations_module
from calotype.bench.profile import capture_generate, capture_train
from calotype.bench.profile.chrome_trace import read_trace
from calotype.bench.profile.nsight import nsight_commands
from calotype.engine.engine import Engine
from calotype.engine.text_encoder import TextConditioner
from calotype.spec.records.profile import GROUPS, ProfileRecord
from calotype.train.callbacks.profiler import NSYS_VARIABLE
from tests.unit.cli.conftest import Calotype
from tests.unit.train.commands.conftest import models, pictures, recipe_file, recipe_of

__all__ = ["models", "pictures", "recipe_file", "recipe_of"]

PICTURE = ("profile", "generate", "emoji", "a red [apple]", "--steps", 2, "--warmup", 1, "--device", "cpu")
SMALL = ("--width", 32, "--height", 32)
STEPS = ("--steps", 2, "--warmup", 1, "--device", "cpu")


class _NothingKnown:
    def as_dict(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names as NVIDIA's programs would see them, '/' where a range ends."""
    names: list[str] = []
    monkeypatch.setattr(annotations_module, "_with_nvtx", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", names.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: names.append("/"))
    return names


def _counts(record: ProfileRecord) -> dict[str, int]:
    return {stage.name: stage.count for stage in record.stages}


def _check(record: ProfileRecord) -> None:
    assert [one.group for one in record.groups] == list(GROUPS)
    assert sum(one.share for one in record.groups) == pytest.approx(1)
    assert sum(one.seconds for one in record.groups) == pytest.approx(record.window_s)
    assert {one.group: one.share for one in record.groups}["convolution"] > 0
    assert record.clock == "host"
    assert record.waiting.verdict == "on the host"
    assert record.unprofiled_s


def test_a_picture_from_end_to_end(calotype: Calotype, tmp_path: Path) -> None:
    out = tmp_path / "out"
    methods = (Engine.step, Engine.finish, TextConditioner.encode)
    done = calotype(*PICTURE, "--out", out, "--top", 20)
    assert done.code == 0, done.err
    assert (Engine.step, Engine.finish, TextConditioner.encode) == methods
    assert sorted(file.name for file in out.iterdir()) == ["profile.json", "profile.md", "trace.json.gz"]
    record = ProfileRecord.model_validate_json((out / "profile.json").read_text())
    _check(record)
    assert _counts(record) == {"text encode": 2, "step": 2, "decode": 1}
    assert record.asked["request"]["prompt"] == "a red [apple]"
    assert record.fingerprint["torch"]["version"] == str(torch.__version__)
    assert str(tmp_path) not in record.command
    trace = read_trace(out / "trace.json.gz")
    assert trace.window.length * 1e-6 == pytest.approx(record.window_s)
    # The prompt and the empty one are encoded although the warm-up has encoded them before.
    encoding = [one.when for one in trace.ranges if one.name == "text encode"]
    looked_up = [one.when.start for one in trace.operations if one.name == "aten::embedding"]
    assert all(any(one.start < start < one.end for start in looked_up) for one in encoding)
    page = (out / "profile.md").read_text()
    for words in ("mkldnn_convolution", "a convolution (oneDNN", "launch gaps", "everything ran on the CPU"):
        assert words in done.out.replace("\n", " ")
        assert words in page
    assert page.count("| aten::") + page.count("| mkldnn::") == 20


@pytest.mark.parametrize("one_pass", [False, True])
def test_training_steps_from_end_to_end(
    calotype: Calotype, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_pass: bool
) -> None:
    monkeypatch.setattr(capture_train, "full_fingerprint", _NothingKnown)
    backward = torch.Tensor.backward
    settings = ("model.use_ema=true", f"optimizer.one_pass={str(one_pass).lower()}")
    done = calotype("profile", "train", recipe_file, *settings, *STEPS, "--out", "p", "--json")
    assert done.code == 0, done.err
    assert torch.Tensor.backward is backward
    told = json.loads(done.out)
    record = ProfileRecord.model_validate_json((tmp_path / "p" / "profile.json").read_text())
    _check(record)
    assert _counts(record) == dict.fromkeys(_counts(record), 2)
    apart = set() if one_pass else {"average"}
    assert set(_counts(record)) == {"data", "prepare", "forward", "backward", "optimizer", *apart}
    assert told["stages"] == record.model_dump(mode="json")["stages"]
    assert not (tmp_path / "run").exists()


def test_nothing_is_recorded_where_another_program_looks(
    calotype: Calotype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pushed: list[str]
) -> None:
    done = calotype(*PICTURE, *SMALL, "--marks-only", "--out", tmp_path / "out")
    assert (done.code, done.out) == (0, "")
    assert "the window was marked" in done.err
    assert not (tmp_path / "out").exists()
    window = pushed[pushed.index("calotype profile") :]
    encoded = ["text encode", "/"]
    assert window == ["calotype profile", *encoded, *encoded, *["step", "/"] * 2, "decode", "/", "/"]
    pushed.clear()
    assert calotype("generate", "a cat", *SMALL, "--steps", 2, "--device", "cpu").code == 0
    assert pushed == []
    monkeypatch.setenv(NSYS_VARIABLE, "1")
    assert "the window was marked" in calotype(*PICTURE, *SMALL, "--out", tmp_path / "out").err


def test_the_commands_of_nvidias_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nsys"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    nsys, ncu = nsight_commands("calotype profile generate emoji 'a cat'", Path("p q"), "step")
    assert (nsys.installed, ncu.installed) == (True, False)
    ours = "calotype profile generate emoji 'a cat' --out 'p q' --marks-only"
    assert nsys.command.startswith("nsys profile ")
    assert "--capture-range=cudaProfilerApi" in nsys.command
    assert nsys.command.endswith(ours)
    assert ncu.command.startswith("ncu --profile-from-start off --nvtx --nvtx-include step/ ")
    assert ncu.command.endswith(ours)


def test_what_cannot_be_profiled_is_refused_before_anything_is_loaded(
    calotype: Calotype, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr("calotype.engine.load.load", refuse)
    monkeypatch.setattr(capture_train, "load_training_model", refuse)
    monkeypatch.setattr(capture_generate, "record", refuse)
    start = ("profile", "generate", "emoji", "a cat")
    for words, said in (
        ((*start, "--steps", 51, "--warmup", 0), ("--steps: 51 is out of range", "1 to 50", "--warmup: 0")),
        ((*start, "--width", 12), ("width",)),
        ((*start, "--out", recipe_file), ("--out", "is a file")),
        (("profile", "train", recipe_file, "--steps", 0), ("--steps: '0' is out of range",)),
        (("profile", "train", recipe_file, "model.nonsense=1"), ("nonsense",)),
        (
            ("profile", "train", recipe_file, "trainer.devices=2", "model.global_batch_size=4"),
            ("2 processes", "trainer.devices=1"),
        ),
    ):
        done = calotype(*words)
        assert done.code == 2, done
        assert all(word in done.err for word in said), done.err
    assert not (tmp_path / "profile").exists()


def test_a_model_nobody_has_is_said(calotype: Calotype, tmp_path: Path) -> None:
    done = calotype("profile", "generate", "emojy", "a cat", "--device", "cpu")
    assert done.code == 4
    assert "emojy" in done.err
    assert "emoji" in done.err
    assert not (tmp_path / "profile").exists()
