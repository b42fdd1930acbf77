"""Averages and learning rates, beside their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from calotype.spec.recipe_sections import EmaConfig, OptimizerConfig
from calotype.train.ema import Ema
from calotype.train.optimizer import learning_rate


def steps_of(part: EmaConfig, values: list[float]) -> tuple[Ema, torch.Tensor]:
    """An average of one number that takes these values one after the other."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    ema = Ema([parameter], part)
    for step, value in enumerate(values, start=1):
        with torch.no_grad():
            parameter.fill_(value)
        ema.step(step)
    return ema, parameter


@pytest.mark.parametrize("device", ["same", "cpu"])
@pytest.mark.parametrize("every", [1, 3])
def test_the_average_of_a_weight_that_stays(every: int, device: str) -> None:
    part = EmaConfig.model_validate(
        {"decay": 0.9, "warmup": False, "every_steps": every, "device": device}, strict=True
    )
    ema, _ = steps_of(part, [1.0] * 6)
    # Starting at 0 and looking at 1, what is left of the start is decay to the power of the steps.
    torch.testing.assert_close(ema.averages[0], torch.full((3,), 1 - 0.9**6), atol=1e-6, rtol=0)
    assert ema.num_updates == 6 // every


def test_the_average_of_a_weight_that_moves() -> None:
    values = [1.0, -2.0, 5.0, 0.5]
    ema, _ = steps_of(EmaConfig(decay=0.8, warmup=False), values)
    wanted = sum(0.2 * 0.8 ** (len(values) - 1 - i) * value for i, value in enumerate(values))
    torch.testing.assert_close(ema.averages[0], torch.full((3,), wanted), atol=1e-6, rtol=0)


def test_the_warm_up_follows_closely_at_first() -> None:
    values = [1.0, 2.0, 3.0]
    ema, _ = steps_of(EmaConfig(decay=0.9999, warmup=True), values)
    average = 0.0
    for step, value in enumerate(values, start=1):
        decay = (1 + step) / (10 + step)
        average = decay * average + (1 - decay) * value
    torch.testing.assert_close(ema.averages[0], torch.full((3,), average), atol=1e-6, rtol=0)
    ema.num_updates = 10**6
    assert ema.share(1) == 1 - 0.9999


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_to_the_bit(dtype: torch.dtype) -> None:
    parameter = torch.nn.Parameter(torch.randn(100, generator=torch.Generator().manual_seed(0)).to(dtype))
    ema = Ema([parameter], EmaConfig())
    ema.averages[0].fill_(7.0)
    before = parameter.detach().clone()
    with ema.swapped_in():
        assert torch.equal(parameter, torch.full((100,), 7.0, dtype=dtype))
    assert torch.equal(parameter, before)
    with pytest.raises(ZeroDivisionError), ema.swapped_in():
        _ = 1 / 0
    assert torch.equal(parameter, before)
    assert ema.averages[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, {1: 1.0, 50: 1.0, 101: 1.0}),
        ({"warmup_steps": 10}, {1: 0.1, 5: 0.5, 10: 1.0, 11: 1.0, 101: 1.0}),
        ({"schedule": "linear"}, {1: 1.0, 51: 0.5, 101: 0.0, 150: 0.0}),
        ({"schedule": "linear", "final_share": 0.2}, {1: 1.0, 51: 0.6, 101: 0.2}),
        ({"schedule": "cosine"}, {1: 1.0, 26: (1 + math.cos(math.pi / 4)) / 2, 51: 0.5, 101: 0.0}),
        ({"schedule": "cosine", "warmup_steps": 50}, {25: 0.5, 50: 1.0, 51: 1.0, 76: 0.5, 101: 0.0}),
    ],
)
def test_learning_rates(settings: dict[str, Any], wanted: dict[int, float]) -> None:
    part = OptimizerConfig(learning_rate=2e-4, **settings)
    for step, share in wanted.items():
        assert learning_rate(part, step, 101) == pytest.approx(2e-4 * share, abs=1e-12)
