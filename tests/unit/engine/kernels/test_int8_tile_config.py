"""Which plan a product gets, and that the check on a GPU measures it at SDXL's products."""

import pytest
import torch

from calotype.engine.kernels import int8_matmul
from calotype.engine.kernels.int8_tile_config import SQUARE, Plan, plan_of
from calotype.engine.kernels.quantize import plain as quantised
from tests.gpu.apart import Row
from tests.gpu.int8_products import CANDIDATES, TILE, Shape, products, show

CPU = torch.device("cpu")


def test_no_tile_is_half_empty_at_the_widths_of_sdxl() -> None:
    for shape in products(8):
        assert plan_of(shape.rows, shape.width, CPU) == SQUARE
        assert shape.width % SQUARE.columns == 0
        assert shape.rows % SQUARE.rows == 0


def test_a_product_of_one_round_has_nothing_to_walk_over() -> None:
    assert plan_of(128 * 132, 128, CPU) is None
    assert plan_of(128 * 132 + 1, 128, CPU) is not None


@pytest.mark.parametrize(("gluon", "plan"), [(True, SQUARE), (False, None)])
def test_a_gpu_without_tritons_lower_level_has_a_program_for_each_tile(
    monkeypatch: pytest.MonkeyPatch, gluon: bool, plan: Plan | None
) -> None:
    monkeypatch.setattr(int8_matmul, "runs_triton_on", lambda _: True)
    monkeypatch.setattr(int8_matmul, "capability", lambda _: (9, 0))
    monkeypatch.setattr(int8_matmul, "runs_gluon_on", lambda _: gluon)
    monkeypatch.setattr(int8_matmul, "planned", lambda *given: given[-1])
    x, weight = (quantised(torch.ones(size, 16), "int8") for size in (128 * 133, 128))
    assert int8_matmul.int8_matmul(x, weight, None, torch.float32) == plan


def test_the_plan_in_use_is_measured() -> None:
    assert SQUARE in [way.plan for way in CANDIDATES]


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
    show(rows, {small: 10, large: 1}, pictures=8)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[-3:] == ["5", "3", "1.40"]
    assert lines[3].split()[-2:] == ["11", "failed"]
    assert lines[4].split()[-6:] == ["quick", "a", "tile", "a", "program", "0.90"]
    assert lines[5] == "quick: it hung"
