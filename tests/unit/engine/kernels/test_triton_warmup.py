"""What Triton does before its first kernel is done ahead, where it will have one."""

import pytest
import torch
from triton.runtime import cache

from calotype.engine.kernels.triton_warmup import prepare_triton


def test_tritons_first_kernel_finds_its_digest_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(cache, "triton_key", lambda: made.append(1))
    preparing = prepare_triton(torch.device("cuda"))
    assert preparing is not None
    preparing.join()
    assert made == [1]


def test_nothing_is_prepared_where_there_will_be_no_kernel() -> None:
    assert prepare_triton(torch.device("cpu")) is None


def test_a_triton_that_is_broken_is_left_for_its_first_kernel(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("no library")

    monkeypatch.setattr(cache, "triton_key", broken)
    preparing = prepare_triton(torch.device("cuda"))
    assert preparing is not None
    preparing.join()
    assert capfd.readouterr().err == ""
