"""States to save, and the strictest comparison of two of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def assert_same(found: Any, expected: Any, where: str = "state") -> None:
    """Same types, same order, same bits."""
    if isinstance(expected, Tensor):
        _assert_same_tensor(found, expected, where)
        return
    assert type(found) is type(expected), f"{where}: {type(found)} instead of {type(expected)}"
    if isinstance(expected, dict):
        assert [(type(k), repr(k)) for k in found] == [(type(k), repr(k)) for k in expected], where
        for mine, (key, value) in zip(found.values(), expected.items(), strict=True):
            assert_same(mine, value, f"{where}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for index, (mine, value) in enumerate(zip(found, expected, strict=True)):
            assert_same(mine, value, f"{where}.{index}")
    elif isinstance(expected, float):
        # repr tells 0.0 from -0.0 and has a NaN equal itself.
        assert repr(found) == repr(expected), where
    else:
        assert found == expected, where


def _assert_same_tensor(found: Any, expected: Tensor, where: str) -> None:
    assert type(found) is Tensor, where
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
    assert found.device.type == "cpu", where
    assert not found.requires_grad, where
    plain = [t.detach().resolve_conj().resolve_neg().cpu().contiguous() for t in (found, expected)]
    assert torch.equal(*(t.reshape(-1).view(torch.uint8) for t in plain)), f"{where}: other bits"


def small_state(seed: int) -> dict[str, Any]:
    """A state that is different for every seed."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "weights": {"a": torch.randn(3, 2, generator=generator), "b": torch.full((2,), seed)},
        "step": seed,
        "rate": seed / 3,
        "optimizer": {0: {"step": torch.tensor(float(seed))}, 1: {}},
    }


def own_state(seed: int, rank: int = 0) -> dict[str, Any]:
    """A state that belongs to one rank."""
    return {"rank": rank, "rng": torch.Generator().manual_seed(seed * 1000 + rank).get_state()}


def trained(steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small network in channels_last and its AdamW after some steps."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 1), nn.Flatten(), nn.Linear(3 * 4 * 4, 2))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's stubs
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for step in range(steps):
        train_one(network, optimizer, step)
    return network, optimizer


def train_one(network: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    inputs = torch.randn(5, 2, 6, 6, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    network(inputs).square().mean().backward()
    optimizer.step()
