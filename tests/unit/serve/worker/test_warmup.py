"""Every number of pictures that may be together is evaluated before the first job, where shapes cost."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from calotype.core.errors import DoesNotFitError
from calotype.core.progress import Silent
from calotype.engine.engine import Engine
from calotype.serve.worker import engine_adapter
from calotype.serve.worker.engine_adapter import RealLoader
from calotype.serve.worker.options import most_rows
from calotype.serve.worker.warmup import warm_up_batches, warmup_batch_sizes
from tests.engines import small_engine


def evaluated(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each evaluation from here on, how many pictures it was for."""
    found: list[int] = []
    network = engine._networks.unet
    evaluate = network.evaluate

    def watched(sample: Any, rows: Any) -> Any:
        found.append(len(rows) // 2)
        return evaluate(sample, rows)

    monkeypatch.setattr(network, "evaluate", watched)
    return found


def test_numbers_of_pictures_are_those_whose_rows_are_evaluated() -> None:
    assert warmup_batch_sizes(32) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]
    assert warmup_batch_sizes(18) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert warmup_batch_sizes(1) == []


def test_each_is_evaluated_until_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine(preset="fast")
    found = evaluated(engine, monkeypatch)
    warm_up_batches(engine, 8, Silent())
    assert found == [1, 1, 2, 2, 3, 3, 4, 4]


def test_what_does_not_fit_is_left_to_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = small_engine(preset="fast")

    def full(*_: object, **__: object) -> None:
        raise DoesNotFitError("1024×1024 does not fit into 4 GB")

    monkeypatch.setattr(engine, "plan_memory", full)
    warm_up_batches(engine, 8, Silent())
    assert "warm-up is incomplete: 1024×1024 does not fit into 4 GB" in caplog.text


@pytest.mark.parametrize("text", ["CUDA error: out of memory", "an illegal memory access was encountered"])
def test_a_device_that_is_full_is_no_reason_not_to_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    engine = small_engine(preset="fast")

    def failing(*_: object, **__: object) -> None:
        raise torch.AcceleratorError(text)

    monkeypatch.setattr(engine, "warm_up_batch", failing)
    full = "out of memory" in text
    with nullcontext() if full else pytest.raises(torch.AcceleratorError):
        warm_up_batches(engine, 8, Silent())
    assert ("warm-up is incomplete" in caplog.text) == full


def test_a_worker_warms_up_its_own_models_once_and_others_never(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[int] = []
    monkeypatch.setattr(
        engine_adapter, "warm_up_batches", lambda _engine, rows, _progress: warmed.append(rows)
    )
    loader = RealLoader(device="cpu", preset="fast", paths={"own": "emoji"}, warm=True, max_rows=6)
    loader.load("own", Silent())
    assert warmed == [], "on a CPU a new number of pictures costs nothing"
    monkeypatch.setattr(engine_adapter, "pass_names", lambda *_: ["cuda_graph"])
    for name in ("emoji", "own", "own"):
        loader.load(name, Silent())
    assert warmed == [6]
    RealLoader(device="cpu", preset="fast", paths={"own": "emoji"}).load("own", Silent())
    assert warmed == [6]


def test_the_usual_bound_is_the_workers() -> None:
    assert warmup_batch_sizes(most_rows(None, "NVIDIA H200"))[-1] == 16
