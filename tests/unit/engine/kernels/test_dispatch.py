"""Which tensors the kernels take, with stand-ins for tensors on GPUs that are not here."""

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from calotype.engine.kernels import dispatch
from calotype.engine.kernels.dispatch import runs_gluon_on, runs_triton

HOPPER, AMPERE = torch.device("cuda", 0), torch.device("cuda", 1)
CAPABILITIES = {0: (9, 0), 1: (8, 0)}


@pytest.fixture(autouse=True)
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_has_triton", lambda: True)
    monkeypatch.setattr(dispatch, "capability", lambda device: CAPABILITIES[device.index])


def on_gpu(**changes: Any) -> Tensor:
    usual = {
        "is_cuda": True,
        "dtype": torch.float16,
        "numel": lambda: 8,
        "requires_grad": False,
        "device": HOPPER,
    }
    return cast("Tensor", SimpleNamespace(**{**usual, **changes}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_gpu_runs_triton(dtype: torch.dtype) -> None:
    assert runs_triton(on_gpu(dtype=dtype))


@pytest.mark.parametrize(
    "changes",
    [
        {"is_cuda": False},
        {"dtype": torch.float64},
        {"numel": lambda: 0},
        {"requires_grad": True},
    ],
)
def test_the_rest_is_plain_torchs(changes: dict[str, Any]) -> None:
    assert not runs_triton(on_gpu(**changes))


def test_without_gradients_weights_that_have_some_are_no_obstacle() -> None:
    with torch.no_grad():
        assert runs_triton(on_gpu(requires_grad=True))


def test_rows_too_wide_for_registers_are_plain_torchs() -> None:
    assert runs_triton(on_gpu(), row=16384)
    assert not runs_triton(on_gpu(), row=16385)


def test_older_gpus_do_not_know_fp8() -> None:
    assert runs_triton(on_gpu(device=AMPERE))
    assert not runs_triton(on_gpu(device=AMPERE), fp8=True)
    assert runs_triton(on_gpu(), fp8=True)


def test_a_machine_without_triton_is_plain_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_has_triton", lambda: False)
    assert not runs_triton(on_gpu())


@pytest.mark.parametrize(
    ("version", "runs"), [("3.6.0", True), ("3.7.1", True), ("3.5.1", False), ("3.8.0", False)]
)
def test_tritons_lower_level_is_asked_for_in_versions_that_have_it(
    monkeypatch: pytest.MonkeyPatch, version: str, runs: bool
) -> None:
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    monkeypatch.setattr(dispatch, "_has_gluon", dispatch._has_gluon.__wrapped__)
    assert runs_gluon_on(HOPPER) == runs
    assert not runs_gluon_on(AMPERE)
