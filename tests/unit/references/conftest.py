"""Records as a training benchmark leaves them, without training anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calotype.bench.references.from_records import entry_of
from calotype.bench.references.types import Entry
from calotype.spec.recipe import Recipe
from calotype.spec.records.train_benchmark import BenchmarkRecord, DeviceMemory, Window
from tests.unit.cli.conftest import calotype

__all__ = ["calotype"]

ROOT = Path(__file__).parents[3]


def record(
    per_device_s: float | None = 114.0, gpu: str = "NVIDIA H200", devices: int = 1, **model: Any
) -> BenchmarkRecord:
    """One row of SD 2-base, changed as the test needs."""
    recipe = Recipe().model_dump(mode="json")
    data = model.pop("data", "synthetic")
    recipe["data"]["kind"] = data
    micro = model.pop("micro_batch_size", 32)
    sizes = {"micro_batch_size": micro, "global_batch_size": micro * devices}
    recipe["model"] |= {"base": "sd2-base", "precision": "bf16", "use_ema": True, **sizes, **model}
    return BenchmarkRecord(
        outcome="OOM" if per_device_s is None else "OK",
        message=None,
        gpu=gpu,
        command="calotype train",
        recipe=recipe,
        devices=devices,
        nodes=1,
        warmup_steps=1,
        warmup_step_s=[1.0],
        steps=1,
        ceiling_tflops=None,
        window=None if per_device_s is None else _window(per_device_s, devices),
        memory=[DeviceMemory(allocated_bytes=2**30, reserved_bytes=2**31, total_bytes=2**37)] * devices,
        fingerprint={},
    )


def entry(name: str = "mine.json", *arguments: Any, **changes: Any) -> Entry:
    return entry_of(record(*arguments, **changes).model_dump(mode="json"), name)


def _window(per_device_s: float, devices: int) -> Window:
    return Window(
        samples=100,
        seconds=1.0,
        samples_per_s=per_device_s * devices,
        samples_per_device_s=per_device_s,
        host_step_s=[1.0],
        device_step_s=None,
        losses=[0.1],
        tflop_per_sample=None,
        tflops_per_device=None,
        mfu=None,
    )


@pytest.fixture
def record_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(record().model_dump_json(), encoding="utf-8")
    return path
