"""`calotype engine export` where it does not end well, and what it leaves behind: nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

from calotype.core.errors import ExitCode
from calotype.core.progress import Silent
from calotype.engine.onnx import export as exporting
from calotype.engine.onnx import export_part
from calotype.engine.onnx.verify import Difference, difference
from calotype.engine.onnx.wrappers import Part, Sizes, TextEncoder
from calotype.models.model import load_part
from calotype.models.weights import RandomWeights
from tests.unit.cli.conftest import Calotype, calotype
from tests.unit.engine.onnx.shallow import shallow

__all__ = ["calotype"]


def written(part: Part, folder: Path) -> None:
    """In the place of the exporter, which takes its time."""
    (folder / "model.onnx").write_bytes(b"")


def left_behind() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.name not in ("cache", "models"))


def test_an_existing_destination_is_refused(calotype: Calotype) -> None:
    Path("taken").mkdir()
    seen = calotype("engine", "export", "emoji", "taken")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "taken exists already" in seen.err
    assert list(Path("taken").iterdir()) == []


def test_an_unknown_model(calotype: Calotype) -> None:
    seen = calotype("engine", "export", "emojy", "new")
    assert seen.code == ExitCode.NOT_FOUND
    assert "did you mean 'emoji'" in seen.err
    assert left_behind() == []


def test_a_precision_that_runtimes_lack(calotype: Calotype) -> None:
    seen = calotype("engine", "export", "emoji", "new", "--dtype", "bf16")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "'bf16' is not supported by ONNX runtimes; use fp32 or fp16" in seen.err


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_names_the_extra(
    calotype: Calotype, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    seen = calotype("engine", "export", "emoji", "new")
    assert seen.code == ExitCode.BAD_REQUEST
    assert f"needs {package}: pip install 'calotype[onnx]'" in seen.err
    assert left_behind() == []


def test_an_interrupted_export_leaves_nothing(calotype: Calotype, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(part: Part, folder: Path) -> None:
        written(part, folder)
        if folder.name == "unet":
            assert (folder.parent / "text_encoder" / "model.onnx").is_file()
            raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "write_graph", interrupted)
    seen = calotype("engine", "export", "emoji", "new", "--no-check")
    assert seen.code == ExitCode.CANCELLED
    assert left_behind() == []


@pytest.mark.parametrize("off", [0.5, float("nan")])
def test_a_part_that_differs_is_named_and_nothing_stays(
    calotype: Calotype, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    monkeypatch.setattr(exporting, "write_graph", written)
    differences = iter([Difference(1e-6, 1e-6), Difference(off, off)])
    monkeypatch.setattr(exporting, "difference", lambda *_: next(differences))
    seen = calotype("engine", "export", "emoji", "new")
    assert seen.code == ExitCode.BAD_REQUEST
    assert f"unet: onnxruntime differs from torch by {off:.3g}" in seen.err
    assert "limit is 0.0001" in seen.err
    assert left_behind() == []


def test_without_the_check_it_says_so(calotype: Calotype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "write_graph", written)
    seen = calotype("engine", "export", "emoji", "new", "--no-check")
    assert seen.code == ExitCode.OK
    assert seen.out.count("not compared with torch") == 4
    assert left_behind() == ["new"]


def test_weights_beside_the_graph_and_a_check_that_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one file would be too large; and the difference is that of the weights, when they differ."""
    monkeypatch.setattr(export_part, "MAX_FILE_BYTES", 1000)
    weights = RandomWeights(shallow("sd2-base"), seed=0)
    network = load_part(
        weights,
        "text_encoder",
        source="random",
        dtype=torch.float32,
        device=torch.device("cpu"),
        progress=Silent(),
    )
    part = TextEncoder(network)
    made, moved = tmp_path / "made", tmp_path / "moved"
    made.mkdir()
    export_part.write_graph(part, made)
    made.rename(moved)
    assert {path.name for path in moved.iterdir()} == {"model.onnx", "model.onnx_data"}
    assert (moved / "model.onnx").stat().st_size < (moved / "model.onnx_data").stat().st_size
    onnx.checker.check_model(str(moved / "model.onnx"))
    assert difference(part, moved / "model.onnx").relative < 1e-5
    with torch.no_grad():
        next(iter(network.parameters())).mul_(1.1)
    assert difference(part, moved / "model.onnx").relative > 1e-2
    session = onnxruntime.InferenceSession(str(moved / "model.onnx"))
    ids = part.example(Sizes(2, 8, 8, 5), torch.Generator())["input_ids"].numpy()
    assert session.run(["last_hidden_state"], {"input_ids": ids})[0].shape[:2] == (2, 5)
