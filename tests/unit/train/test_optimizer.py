"""Optimizers of other libraries are told the rate in their own way."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from calotype.core.errors import NotFoundError
from calotype.spec.recipe_sections import OptimizerConfig
from calotype.train.optimizer import build_optimizer, set_learning_rate

PART = OptimizerConfig(name="adamw8bit", learning_rate=0.5, weight_decay=0.0)


class RateInATensor(torch.optim.SGD):
    """Keeps its rate as torchao's optimizers do, and like them refuses one that is put in its place."""

    def __init__(self, parameters: Any, **settings: Any) -> None:
        super().__init__(parameters, lr=torch.tensor(settings["lr"]))
        self._rate = self.param_groups[0]["lr"]

    def step(self, closure: Any = None) -> Any:
        assert self.param_groups[0]["lr"] is self._rate
        return super().step(closure)


def test_a_rate_that_lies_in_a_tensor_is_changed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    package, optimizers = ModuleType("torchao"), ModuleType("torchao.optim")
    optimizers.AdamW8bit = RateInATensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchao", package)
    monkeypatch.setitem(sys.modules, "torchao.optim", optimizers)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = build_optimizer([weight], PART)
    for rate in (0.5, 0.25):
        set_learning_rate(optimizer, rate)
        weight.grad = torch.ones(1)
        optimizer.step()
    assert weight.item() == -0.75


def test_without_the_package_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    with pytest.raises(NotFoundError, match=r"adamw8bit needs torchao: pip install 'calotype\[train\]'"):
        build_optimizer([nn.Parameter(torch.zeros(1))], PART)
