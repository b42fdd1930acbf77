"""The device's ceiling and what is told from it: units, and where there is none."""

from __future__ import annotations

import pytest
import torch

from calotype.models import catalogue
from calotype.spec.recipe import Recipe
from calotype.spec.records.device_peak import NoRate
from calotype.train import metrics as module
from calotype.train import peak_flops
from calotype.train.flops import training_tflop
from calotype.train.metrics import Metrics, most_samples_per_s
from calotype.train.peak_flops import measured_peak
from calotype.train.trainer import StepMetrics

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def news(samples_per_s: float) -> StepMetrics:
    return StepMetrics(7, 0.5, 1.0, 1e-4, 70, samples_per_s, False, 0, {})


def test_a_cpu_has_no_ceiling() -> None:
    assert measured_peak(CPU, torch.float32) is None


def test_what_is_remembered_of_a_device_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(name: str, precision: str) -> float | None:
        return {("A GPU", "bf16"): 700.0}.get((name, precision))

    def measured(*_: object, **__: object) -> NoRate:
        return NoRate(what="matmul", dtype="fp16", reason="no room")

    monkeypatch.setattr(peak_flops, "device_name", lambda _: "A GPU")
    monkeypatch.setattr(peak_flops, "known_peak", known)
    monkeypatch.setattr(peak_flops, "measure_rate", measured)
    # Without the memory of the process, which other tests share.
    ask = measured_peak.__wrapped__
    assert ask(GPU, torch.bfloat16) == 700.0
    assert ask(GPU, torch.float16) is None


def test_mfu_is_the_counted_work_over_all_devices_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def measured(*arguments: object) -> float:
        asked.append(arguments)
        return 800.0

    monkeypatch.setattr(module, "measured_peak", measured)
    sd15 = catalogue.architecture("sd15")
    values = {"model": {"global_batch_size": 16}, "trainer": {"devices": 2}}
    recipe = Recipe.parse(values)
    work = training_tflop(sd15, recipe)
    assert work is not None
    most = most_samples_per_s(recipe, sd15, GPU)
    assert asked == [(GPU, torch.bfloat16)]
    # 100 samples a second, 50 on each device.
    assert Metrics(most).of(news(100.0))["mfu"] == pytest.approx(50 * work / 800)

    given = Recipe.parse({**values, "trainer": {"devices": 2, "ceiling_tflops": 400.0}})
    assert Metrics(most_samples_per_s(given, sd15, GPU)).of(news(100.0))["mfu"] == pytest.approx(
        50 * work / 400
    )
    assert most_samples_per_s(given, sd15, CPU) is None
    assert most_samples_per_s(given, catalogue.architecture("emoji"), GPU) is None
    assert len(asked) == 1


def test_without_a_ceiling_nothing_is_said_of_mfu() -> None:
    assert "mfu" not in Metrics().of(news(100.0))
