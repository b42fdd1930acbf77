"""The product in eight bits with a warp that fetches and teams that multiply, on a stand-in for a GPU."""

import pytest
import torch
from torch import Tensor

from calotype.engine.kernels import dispatch, int8_matmul
from calotype.engine.kernels.int8_tile_config import Plan
from calotype.engine.kernels.quantize import Quantized
from calotype.engine.kernels.quantize import plain as quantised
from tests.unit.engine.kernels.gluon_stand_in import launch

ONE = Plan(16, 32, 32, stages=3, teams=1)
TWO = Plan(16, 16, 32, stages=3, teams=2)
# (plan, rows, depth, width), on three multiprocessors
CASES = {
    "one team": (ONE, 64, 160, 96),
    "two teams": (TWO, 64, 160, 96),
    "two teams, two stages": (Plan(16, 16, 32, stages=2, teams=2), 48, 96, 64),
    "two teams, whole tiles": (Plan(16, 16, 32, stages=4, parts=1, teams=2), 48, 96, 64),
    "one team, quarters": (Plan(16, 64, 32, stages=2, parts=4, teams=1), 48, 64, 128),
    "more stages than steps": (Plan(16, 16, 32, stages=6, teams=2), 64, 64, 64),
    "one step": (TWO, 64, 32, 64),
    "one tile": (TWO, 16, 96, 16),
    "a team without a last tile": (TWO, 16 * 7, 96, 16),
    "all ends inside tiles": (ONE, 45, 80, 112),
    "all ends inside tiles of two teams": (TWO, 45, 80, 112),
    "more rows of tiles than neighbours": (TWO, 16 * 19, 32, 32),
}


def given(rows: int, depth: int, width: int) -> tuple[Quantized, Quantized, Tensor]:
    chance = torch.Generator().manual_seed(rows)
    x, weight = (quantised(torch.randn(size, depth, generator=chance), "int8") for size in (rows, width))
    return x, weight, torch.randn(width, generator=chance)


@pytest.fixture(autouse=True)
def _a_small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_MULTIPROCESSORS", 3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_is_the_product_whoever_comes_first(name: str, seed: int) -> None:
    plan, *shape = CASES[name]
    x, weight, bias = given(*shape)
    found = launch(x, weight, bias if seed else None, torch.float32, plan, seed)
    wanted = int8_matmul.plain(x, weight, bias if seed else None, torch.float32)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
