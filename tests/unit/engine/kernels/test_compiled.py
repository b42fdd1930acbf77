"""The kernels go through Triton's compiler for Hopper, and come out as they were meant to run there."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from calotype.engine.kernels.attention import PLANS
from calotype.engine.kernels.geglu_backward_triton import _PROGRAMS
from tests.gpu.attention import CANDIDATES as ATTENTIONS
from tests.gpu.int8_products import CANDIDATES
from tests.unit.engine.kernels.subprocess_cases import ask

CASES: dict[str, dict[str, Any]] = {
    "group norm in chunks": {"operation": "group_norm", "shape": [1, 320, 64, 64], "shift": True},
    "group norm of a pair": {"operation": "group_norm", "shape": [1, 960, 64, 64], "first": 640},
    "group norm of a sum": {"operation": "group_norm", "shape": [1, 320, 64, 64], "sum": True},
    "group norm of a pair with a sum": {
        "operation": "group_norm",
        "shape": [1, 960, 64, 64],
        "first": 640,
        "sum": True,
    },
    "group norm of whole groups of a sum": {
        "operation": "group_norm",
        "shape": [1, 1280, 16, 16],
        "sum": True,
    },
    "group norm of whole groups": {"operation": "group_norm", "shape": [1, 1280, 16, 16], "shift": True},
    "group norm in fp8": {
        "operation": "group_norm",
        "shape": [1, 640, 64, 64],
        "shift": True,
        "factor": 4.0,
    },
    "group norm of a pair with a sum in fp8": {
        "operation": "group_norm",
        "shape": [1, 960, 64, 64],
        "first": 640,
        "sum": True,
        "factor": 4.0,
    },
    "group norm of whole groups in fp8": {
        "operation": "group_norm",
        "shape": [1, 1280, 16, 16],
        "shift": True,
        "factor": 4.0,
    },
    "group norm of the autoencoder": {"operation": "group_norm", "shape": [1, 128, 512, 512]},
    "layer norm of a sum": {"operation": "rows", "of": "add_layer_norm", "shape": [8, 640]},
    "layer norm in fp8": {
        "operation": "rows",
        "of": "layer_norm_quantised",
        "shape": [8, 1280],
        "kind": "fp8",
    },
    "layer norm in int8 with a known scale": {
        "operation": "rows",
        "of": "layer_norm_quantised",
        "shape": [8, 1280],
        "kind": "int8",
        "scale": 0.01,
    },
    "gate": {"operation": "rows", "of": "geglu", "shape": [8, 5120]},
    "gate in int8": {"operation": "rows", "of": "geglu_quantised", "shape": [8, 10240], "kind": "int8"},
    "rows in fp8": {"operation": "rows", "of": "quantise_rows", "shape": [8, 640], "kind": "fp8"},
    "pixels": {"operation": "upsample", "shape": [1, 640, 32, 32]},
}
PRODUCTS: dict[str, dict[str, Any]] = {
    "wide": {"operation": "product", "shape": [16384, 1280, 10240]},
    "tall": {"operation": "product", "shape": [16384, 5120, 1280]},
    "small": {"operation": "product", "shape": [128, 1280, 1280]},
}
# Programs that walk over tiles, by all plans that are measured on a GPU.
WALKING: dict[str, dict[str, Any]] = {
    way.name: {"operation": "product", "shape": [16384, 1280, 3840], "plan": asdict(plan)}
    for way in CANDIDATES
    if (plan := way.plan)
}
# All plans of attention that are measured on a GPU; those that are not split are the same for heads of 64.
ATTENTION: dict[str, dict[str, Any]] = {
    f"attention, {way.name}": {"operation": "attention", "shape": [2, 8, 4096, 40], "plan": asdict(way.plan)}
    for way in ATTENTIONS
    if way.plan
}
ATTENTION["attention in bf16"] = {
    "operation": "attention",
    "shape": [2, 10, 1024, 64],
    "dtype": "bfloat16",
    "plan": asdict(PLANS[64]),
}
# A picture of each width of SDXL as it is tiled, and others.
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "at 1280": {"operation": "convolution", "shape": [16, 2560, 32, 32], "made": 1280},
    "at 640": {"operation": "convolution", "shape": [16, 960, 64, 64], "made": 640},
    "at 320": {"operation": "convolution", "shape": [16, 320, 128, 128], "made": 320},
    "of one picture": {"operation": "convolution", "shape": [2, 1280, 32, 32], "made": 1280},
    "of an odd size": {"operation": "convolution", "shape": [1, 320, 36, 28], "made": 320},
}
UPDATES: dict[str, dict[str, Any]] = {
    "update": {"operation": "adamw", "sizes": [4096, 320], "averaged": False},
    "update and average": {"operation": "adamw", "sizes": [4096, 320], "averaged": True},
}
# The widths of SD's feed-forward layers, and the precision that weights are kept in.
GATES: dict[str, dict[str, Any]] = {
    "gate's gradient, 1280": {"operation": "geglu_backward", "shape": [4096, 1280], "dtype": "bfloat16"},
    "gate's gradient, 5120": {"operation": "geglu_backward", "shape": [64, 5120], "dtype": "bfloat16"},
    "gate's gradient, fp32": {"operation": "geglu_backward", "shape": [4096, 1280], "dtype": "float32"},
}
MOST_SHARED_BYTES = 227 * 1024
"""Of a multiprocessor that one program may have."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    cache: Path = tmp_path_factory.mktemp("compiled")
    cases = {**CASES, **PRODUCTS, **WALKING, **CONVOLUTIONS, **ATTENTION, **UPDATES, **GATES}
    answers = ask("compiled", list(cases.values()), TRITON_CACHE_DIR=str(cache))
    return dict(zip(cases, answers, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_memory_is_read_in_the_widest_pieces(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    assert found[name]
    for kernel in found[name]:
        assert kernel["wide_loads"] > 0.75, kernel
    # The statistics of chunks are few numbers; the last kernel writes the result.
    assert found[name][-1]["wide_stores"] > 0.75


@pytest.mark.parametrize("name", CASES)
def test_numbers_stay_in_registers(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    for kernel in found[name]:
        assert kernel["spilled_bytes"] == 0, kernel
        assert kernel["registers"] <= 128, kernel


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_runs_on_the_tensor_cores(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    (kernel,) = found[name]
    assert all("s32.s8.s8" in product for product in kernel["products"])
    assert kernel["products"]
    assert kernel["spilled_bytes"] == 0, kernel
    assert not kernel["waits_after_each"]


@pytest.mark.parametrize("name", WALKING)
def test_a_program_that_walks_fetches_and_writes_by_the_copy_engine(
    found: dict[str, list[dict[str, Any]]], name: str
) -> None:
    (kernel,) = found[name]
    assert kernel["products"]
    assert kernel["copy_engine"] == ["shared", "global"]
    assert kernel["spilled_bytes"] == 0, kernel


@pytest.mark.parametrize("name", WALKING)
def test_a_program_that_walks_finds_room(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    (kernel,) = found[name]
    assert kernel["shared_bytes"] <= MOST_SHARED_BYTES
    assert kernel["registers"] * 32 * kernel["warps"] <= 65536


@pytest.mark.parametrize("name", WALKING)
def test_teams_have_products_under_way_while_they_ask_for_more(
    found: dict[str, list[dict[str, Any]]], name: str
) -> None:
    """Triton's language waits behind every step of whole numbers: the reason for the kernel below it."""
    (kernel,) = found[name]
    assert kernel["some_under_way"]
    assert kernel["shares_registers"]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_keeps_the_tensor_cores_busy(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    (kernel,) = found[name]
    assert all("f32.e4m3.e4m3" in product for product in kernel["products"])
    assert kernel["products"]
    assert kernel["spilled_bytes"] == 0, kernel
    assert kernel["shared_bytes"] <= MOST_SHARED_BYTES, kernel
    assert not kernel["waits_after_each"]
    assert kernel["some_under_way"]
    assert kernel["copied_in_boxes"]


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_works_out_shares_while_products_are_under_way(
    found: dict[str, list[dict[str, Any]]], name: str
) -> None:
    """The assembler moves waits and puts products one behind the other as it likes; here it must not."""
    (kernel,) = found[name]
    plan = ATTENTION[name]["plan"]
    each = plan["queries"] * plan["keys"] // 128  # threads of a team
    assert len(kernel["powers_under_way"]) == plan["teams"]
    assert all(powers >= each for powers in kernel["powers_under_way"]), kernel


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_finds_room(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    (kernel,) = found[name]
    assert kernel["copy_engine"] == ["shared", "global"]
    assert kernel["shares_registers"]
    assert kernel["spilled_bytes"] == 0, kernel
    assert kernel["shared_bytes"] <= MOST_SHARED_BYTES


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_moves_four_numbers_at_a_time(found: dict[str, list[dict[str, Any]]], name: str) -> None:
    (kernel,) = found[name]
    # Beside the numbers themselves it reads where they are.
    assert kernel["wide_loads"] > 0.5, kernel
    assert kernel["wide_stores"] == 1.0, kernel
    assert kernel["spilled_bytes"] == 0, kernel
    assert kernel["registers"] <= 64, kernel


@pytest.mark.parametrize("name", GATES)
def test_the_gradient_of_a_gate_moves_sixteen_bytes_at_a_time_and_all_programs_find_room(
    found: dict[str, list[dict[str, Any]]], name: str
) -> None:
    (kernel,) = found[name]
    # The bias and the sums, once for each program, are read and written as they come.
    assert kernel["wide_loads"] > 0.75, kernel
    assert kernel["wide_stores"] > 0.75, kernel
    assert kernel["spilled_bytes"] == 0, kernel
    assert _PROGRAMS // 132 * kernel["registers"] * 32 * kernel["warps"] <= 65536
