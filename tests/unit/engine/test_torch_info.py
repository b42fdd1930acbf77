"""What torch says of itself: kernels are run and their answers compared."""

import warnings

import pytest
import torch

from calotype.core.toolchain import Compiler, Toolchain
from calotype.engine import attention_backends, torch_info
from calotype.engine.attention_backends import first_line, try_attention
from tests.unit.cli.doctor.machines import COMPILERS


def test_flash_and_math_work_on_the_cpu() -> None:
    trials = {trial.backend: trial for trial in try_attention("cpu")}
    assert set(trials) == {"flash", "math"}
    assert all(trial.works and trial.reason is None for trial in trials.values())


@pytest.mark.parametrize("wrong", [0.0, float("nan")])
def test_a_kernel_with_a_wrong_answer_does_not_work(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    def answer(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.full_like(query, wrong)

    monkeypatch.setattr(attention_backends, "scaled_dot_product_attention", answer)
    for trial in try_attention("cpu"):
        assert not trial.works
        assert "wrong result" in str(trial.reason)


def test_the_reason_is_taken_from_torchs_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        for said in (
            "Flash attention kernel not used because:",
            "Needs a newer card. (Triggered internally at /x/y.cpp:1.)",
            "cuDNN attention has been runtime disabled.",
        ):
            warnings.warn(said, stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(attention_backends, "scaled_dot_product_attention", refuse)
    assert try_attention("cpu")[0].reason == "Needs a newer card."


def test_without_warnings_the_error_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("CUDA error: no kernel image\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(attention_backends, "scaled_dot_product_attention", refuse)
    assert try_attention("cpu")[0].reason == "CUDA error: no kernel image"


def test_long_reasons_are_cut() -> None:
    assert len(first_line("x" * 1000)) == 160


def test_a_cuda_build_without_a_usable_card_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", refuse)
    facts = torch_info.torch_facts(COMPILERS)
    assert facts.cuda_trouble == "The NVIDIA driver on your system is too old"
    assert [device.device for device in facts.devices] == ["cpu"]


@pytest.mark.parametrize(
    ("number", "version"), [(91002, "9.10.2"), (90100, "9.1.0"), (8902, "8.9.2"), (None, None)]
)
def test_cudnn_version(monkeypatch: pytest.MonkeyPatch, number: int | None, version: str | None) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: number)
    assert torch_info.torch_facts(COMPILERS).cudnn == version


@pytest.mark.parametrize(
    ("cxx", "reason"),
    [
        (None, "no C++ compiler"),
        (Compiler("g++", "13.3.0", False), "g++ does not find Python's headers or OpenMP"),
        (Compiler("g++", "13.3.0", True), None),
    ],
)
def test_compile_readiness_on_the_cpu(cxx: Compiler | None, reason: str | None) -> None:
    readiness = torch_info.torch_facts(Toolchain(None, cxx, None, None)).compile[-1]
    assert (readiness.device_type, readiness.ready, readiness.reason) == ("cpu", reason is None, reason)
