"""Devices and precisions: what is chosen, why, and what is refused, with or without a GPU here."""

from __future__ import annotations

import pytest
import torch

from calotype.core.errors import RequestError
from calotype.engine.device import (
    DTYPES,
    choose_device,
    choose_dtype,
    device_name,
    free_memory,
    precision_name,
)
from calotype.spec.constants import PRECISIONS


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)


@pytest.mark.parametrize(
    ("gpus", "chosen", "reason"), [(0, "cpu", "torch sees no GPU"), (1, "cuda", "torch sees a GPU")]
)
def test_a_device_nobody_chose_is_the_gpu_if_there_is_one(
    gpus: int, chosen: str, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with_gpus(monkeypatch, gpus)
    assert choose_device(None) == torch.device(chosen)
    assert reason in caplog.text


@pytest.mark.parametrize("wanted", ["gpu", "cuda:x", "mps", "meta", "", "c" * 1000, "cuda:-1"])
def test_what_is_no_device_of_ours_is_refused(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 2)
    with pytest.raises(RequestError, match="is not a device; use cpu, cuda or cuda:0") as caught:
        choose_device(wanted)
    assert len(str(caught.value)) < 200


def test_a_gpu_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(RequestError, match="'cuda:2' does not exist: torch sees 2 GPUs; see `calotype"):
        choose_device("cuda:2")
    with_gpus(monkeypatch, 0)
    with pytest.raises(RequestError, match="torch sees 0 GPUs"):
        choose_device("cuda")


def test_a_precision_nobody_chose_depends_on_the_device() -> None:
    assert choose_dtype(None, torch.device("cpu")) == torch.float32
    assert choose_dtype(None, torch.device("cuda")) == torch.float16


def test_every_precision_a_request_may_name_is_known_and_named_back() -> None:
    assert set(DTYPES) == set(PRECISIONS)
    for name in PRECISIONS:
        assert precision_name(choose_dtype(name, torch.device("cpu"))) == name
    with pytest.raises(RequestError, match="'f16' is not known; did you mean 'fp16'"):
        choose_dtype("f16", torch.device("cpu"))


def test_memory_of_a_gpu_counts_what_torch_holds_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (1000, 9000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 200)
    assert free_memory(torch.device("cuda")) == (1300, "GPU memory")


def test_records_call_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA H200")
    assert device_name(torch.device("cuda")) == "NVIDIA H200"
    assert device_name(torch.device("cpu")) == "cpu"
