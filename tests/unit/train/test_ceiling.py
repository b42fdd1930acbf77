"""The device's ceiling and what is told from it: units, and where there is none."""

from __future__ import annotations

import pytest
import torch

from calotype.models import catalogue
from calotype.spec.recipe import Recipe
from calotype.train import readings as module
from calotype.train.ceiling import measured_ceiling, product_tflops
from calotype.train.counted_work import training_tflop
from calotype.train.loop import StepNews
from calotype.train.readings import Readings, most_samples_per_s

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class Clock:
    """Says what it was told to say."""

    def __init__(self, *durations: float) -> None:
        self._times = [time for duration in durations for time in (0.0, duration)]

    def __call__(self) -> float:
        return self._times.pop(0)


def news(samples_per_s: float) -> StepNews:
    return StepNews(7, 0.5, 1.0, 1e-4, 70, samples_per_s, False, 0, {})


def test_the_ceiling_is_two_operations_for_each_product_in_the_best_round() -> None:
    waits: list[None] = []
    one, other = torch.randn(16, 32), torch.randn(32, 8)
    # The first is the warm-up, however quick.
    reached = product_tflops(one, other, lambda: waits.append(None), Clock(0.1, 2.0, 1.0, 4.0))
    assert reached == pytest.approx(10 * 2 * 16 * 32 * 8 / 1.0 / 1e12)
    assert len(waits) == 8


def test_a_cpu_has_no_ceiling() -> None:
    assert measured_ceiling(CPU, torch.float32) is None


def test_mfu_is_the_counted_work_over_all_devices_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def measured(*arguments: object) -> float:
        asked.append(arguments)
        return 800.0

    monkeypatch.setattr(module, "measured_ceiling", measured)
    sd15 = catalogue.architecture("sd15")
    values = {"model": {"global_batch_size": 16}, "trainer": {"devices": 2}}
    recipe = Recipe.parse(values)
    work = training_tflop(sd15, recipe)
    assert work is not None
    most = most_samples_per_s(recipe, sd15, GPU)
    assert asked == [(GPU, torch.bfloat16)]
    # 100 samples a second, 50 on each device.
    assert Readings(most).of(news(100.0))["mfu"] == pytest.approx(50 * work / 800)

    given = Recipe.parse({**values, "trainer": {"devices": 2, "ceiling_tflops": 400.0}})
    assert Readings(most_samples_per_s(given, sd15, GPU)).of(news(100.0))["mfu"] == pytest.approx(
        50 * work / 400
    )
    assert most_samples_per_s(given, sd15, CPU) is None
    assert most_samples_per_s(given, catalogue.architecture("emoji"), GPU) is None
    assert len(asked) == 1


def test_without_a_ceiling_nothing_is_said_of_mfu() -> None:
    assert "mfu" not in Readings().of(news(100.0))
