"""What is said where nothing can be compiled, kept or loaded: no compiler, no room, a strange compiler."""

from __future__ import annotations

import errno
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.exc import InductorError, InvalidCxxCompiler

from calotype.core.errors import CalotypeError, DiskFullError
from calotype.engine.compile import worker_process
from calotype.engine.compile.aot_package import write_package
from calotype.engine.compile.region import CompileRequest, Region, RegionSignature
from calotype.engine.compile.subprocess_compiler import SubprocessCompiler
from tests.engines import small_engine
from tests.unit.engine.compile.tiny import tiny

GIVEN = torch.ones(2, 4)


def order() -> CompileRequest:
    layer = nn.Linear(4, 4)

    def walk(x: Tensor) -> Tensor:
        return layer(x)

    return CompileRequest("signature", Region("layer", layer, walk), (RegionSignature.of(GIVEN),))


@pytest.mark.parametrize(
    ("stopped_by", "kind", "said"),
    [
        (InvalidCxxCompiler(), CalotypeError, r"No working C\+\+ compiler found .*; install g\+\+"),
        (OSError(errno.ENOSPC, "No space left on device"), DiskFullError, "No space left .*set TMPDIR"),
    ],
    ids=["no compiler", "no room"],
)
def test_a_compiler_that_is_stopped_says_by_what(
    stopped_by: Exception,
    kind: type[Exception],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise InductorError(stopped_by, None)

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", stopped)
    with pytest.raises(kind, match=said):
        write_package(order(), tmp_path / "layer.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_kept_is_an_error_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no end of the process, which torch's own writer makes of a full disk."""

    def compiled(_program: Any, *, package_path: Any, **_: Any) -> None:
        package_path.write(b"machine code")

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compiled)
    write_package(order(), tmp_path / "layer.pt2")
    assert (tmp_path / "layer.pt2").read_bytes() == b"machine code"
    with pytest.raises(FileNotFoundError):
        write_package(order(), tmp_path / "missing" / "layer.pt2")


def test_what_cannot_be_loaded_is_refused_by_whoever_compiled_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "write_package", lambda _, path: path.write_bytes(b"no machine code"))
    block = "mid_block.attentions.0.transformer_blocks.0"
    written = {
        "architecture": tiny().as_dict(),
        "passes": ["own_forward", "compile_blocks"],
        "precision": "fp32",
        "device": "cpu",
        "signature": "block",
        "region": block,
        "inputs": [],
        "path": str(tmp_path / "block.pt2"),
    }
    with pytest.raises(CalotypeError, match=r"compiled region cannot be loaded: .*set CXX to another"):
        worker_process.compile_request(written)


def test_what_ends_the_process_that_loads_it_ends_the_compilers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subprocess, "Popen", partial(_dies, subprocess.Popen))
    elsewhere = SubprocessCompiler(small_engine(architecture=tiny()).model, ["own_forward"], at_once=2)
    for _ in range(3):
        with pytest.raises(CalotypeError, match=r"crashed, or its output when it was loaded; .* set CXX"):
            elsewhere(order())


def _dies(start: Any, _: list[str], **how: Any) -> Any:
    return start(["sh", "-c", "read order; kill -SEGV $$"], **how)
