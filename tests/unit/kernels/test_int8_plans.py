"""Which plan a product gets, and that the check on a GPU measures those of the table at SDXL's products."""

import pytest
import torch

from calotype.engine.kernels import int8_plans, int8_product
from calotype.engine.kernels.int8_plans import Kernel, plan_of
from tests.gpu.apart import Row
from tests.gpu.int8_products import CANDIDATES, TILE, Shape, products, show

CPU = torch.device("cpu")
WALKING: tuple[Kernel, ...] = ("persistent", "specialised")


def test_the_kernel_that_was_measured_is_in_use() -> None:
    assert int8_product._KERNEL == "tile"
    assert plan_of("tile", 65536, 5120, CPU) is None


@pytest.mark.parametrize("kernel", WALKING)
def test_no_tile_is_half_empty_at_the_widths_of_sdxl(kernel: Kernel) -> None:
    for shape in products(8):
        plan = plan_of(kernel, shape.rows, shape.width, CPU)
        assert plan is not None
        assert shape.width % plan.columns == 0
        assert shape.rows % plan.rows == 0
        assert (plan.teams > 0) == (kernel == "specialised")


@pytest.mark.parametrize("kernel", WALKING)
def test_a_product_of_one_round_has_nothing_to_walk_over(kernel: Kernel) -> None:
    assert plan_of(kernel, 128 * 132, 256, CPU) is None
    assert plan_of(kernel, 128 * 132 + 1, 256, CPU) is not None


def test_the_plans_of_the_table_are_measured() -> None:
    measured = [way.plan for way in CANDIDATES]
    assert all(plan in measured for plans in int8_plans._PLANS.values() for plan in plans)


def test_products_are_those_of_sdxls_seventy_layers() -> None:
    """Ten layers of width 640 (2 × 2 down, 3 × 2 up), sixty of 1280 (2 × 10, 10 in the middle, 3 × 10)."""
    assert products(8) == {
        Shape(65536, 640, 1920, bias=False): 10,
        Shape(65536, 640, 640, bias=False): 30,
        Shape(65536, 640, 5120, bias=True): 10,
        Shape(65536, 2560, 640, bias=False): 10,
        Shape(16384, 1280, 3840, bias=False): 60,
        Shape(16384, 1280, 1280, bias=False): 180,
        Shape(16384, 1280, 10240, bias=True): 60,
        Shape(16384, 5120, 1280, bias=False): 60,
    }


def test_the_table_names_the_fastest_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    small, large = Shape(1024, 512, 512, bias=False), Shape(2048, 512, 512, bias=False)
    rows = {
        TILE.name: Row({small: 100.0, large: 400.0}),
        "quick": Row({small: 50.0}, {large: "it hung"}),
    }
    show(rows, {small: 10, large: 1})
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[-3:] == ["5", "3", "1.40"]
    assert lines[3].split()[-2:] == ["11", "failed"]
    assert lines[4].split()[-6:] == ["quick", "a", "tile", "a", "program", "0.90"]
    assert lines[5] == "quick: it hung"
