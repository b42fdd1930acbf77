"""Attention to prompts against torch's, run by Triton's interpreter; what it takes; a table of ways."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from diffusers.models.attention import BasicTransformerBlock
from torch import Tensor

from calotype.engine.kernels import choice
from calotype.engine.kernels.prompt_attention import CHANNELS, Plan, parts_of, plan_of, suits
from calotype.engine.network.operations import Operations
from calotype.engine.network.operations import attention as usual
from calotype.engine.network.transformer import Layer
from tests.gpu.apart import Row
from tests.gpu.prompt_attention import CANDIDATES, SHAPES, WAYS, Shape, show
from tests.unit.kernels.asked import interpret

# On three multiprocessors: programs of a batch walk over more places than those of a row alone.
CASES: dict[str, dict[str, Any]] = {
    "heads of 64": {"shape": [4, 1, 150, 64], "tokens": 77, "dtype": "bf16"},
    "heads of 40": {"shape": [2, 2, 70, 40], "tokens": 77, "dtype": "fp16"},
    "heads outside places": {"shape": [2, 3, 20, 40], "tokens": 9, "dtype": "fp16", "outside": True},
    "heads of 80, a long prompt": {"shape": [2, 1, 65, 80], "tokens": 154, "dtype": "fp16"},
    "heads of 160": {"shape": [1, 2, 64, 160], "tokens": 77, "dtype": "bf16", "plan": {"stages": 1}},
    "a very long prompt": {"shape": [2, 1, 64, 64], "tokens": 231, "dtype": "fp16"},
    "whole tiles of tokens": {"shape": [2, 1, 64, 64], "tokens": 80, "dtype": "fp16"},
    "one token, few places": {"shape": [1, 3, 5, 64], "tokens": 1, "dtype": "fp16"},
    "walks that end early": {"shape": [3, 1, 200, 64], "tokens": 5, "dtype": "fp16", "plan": {"queries": 16}},
    "scores far apart": {"shape": [1, 2, 33, 64], "tokens": 77, "dtype": "fp16", "spread": 60.0},
}
HOPPER, AMPERE, TURING = (torch.device("cuda", index) for index in range(3))
CAPABILITIES = {0: (9, 0), 1: (8, 0), 2: (7, 5)}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    cases = [{"operation": "prompt_attention", **case} for case in CASES.values()]
    return dict(zip(CASES, interpret(cases), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_is_torchs_up_to_rounding(found: dict[str, dict[str, Any]], name: str) -> None:
    assert found[name]["steps"] < 0.5
    assert found[name]["taken"]


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_the_same_alone(found: dict[str, dict[str, Any]], name: str) -> None:
    assert found[name]["alone"]


@pytest.mark.parametrize("name", CASES)
def test_the_next_product_reads_a_view(found: dict[str, dict[str, Any]], name: str) -> None:
    assert found[name]["as_the_next_product_reads_it"]


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (77, (64, 16)),
        (154, (128, 32)),
        (231, (256, 0)),
        (40, (32, 16)),
        (64, (64, 0)),
        (80, (64, 16)),
        (160, (128, 32)),
        (65, (64, 16)),
        (97, (128, 0)),
        (1, (16, 0)),
        (17, (32, 0)),
    ],
)
def test_few_columns_are_empty(size: int, parts: tuple[int, int]) -> None:
    assert parts_of(size) == parts
    assert sum(parts) >= size


@pytest.mark.parametrize("channels", CHANNELS)
def test_every_head_has_a_plan_for_the_usual_prompt(channels: int) -> None:
    assert plan_of(channels, 77) is not None


@pytest.fixture
def _a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_has_triton", lambda: True)
    monkeypatch.setattr(choice, "capability", lambda device: CAPABILITIES[device.index])


def on_gpu(x: Tensor, device: torch.device = HOPPER, **changes: Any) -> Tensor:
    names = ("dtype", "shape", "stride", "numel", "element_size", "data_ptr", "requires_grad")
    same = {name: getattr(x, name) for name in names}
    return cast("Tensor", SimpleNamespace(**{**same, "is_cuda": True, "device": device, **changes}))


def given(
    tokens: int = 77, channels: int = 64, dtype: torch.dtype = torch.float16, places: int = 100
) -> tuple[Tensor, ...]:
    """Query, key and value as the forward pass has them."""
    query = torch.empty(2, places, 3, channels, dtype=dtype).transpose(1, 2)
    return query, *torch.empty(2, tokens, 2, 3, channels, dtype=dtype).permute(2, 0, 3, 1, 4).unbind()


def taken(views: tuple[Tensor, ...], **changes: Any) -> bool:
    query, key, value = (on_gpu(x, **changes) for x in views)
    return suits(query, key, value)


@pytest.mark.usefixtures("_a_gpu")
@pytest.mark.parametrize("device", [HOPPER, AMPERE])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "channels"), [(77, 40), (77, 64), (77, 80), (77, 160), (231, 64), (256, 80), (1, 64)]
)
def test_takes_prompts_where_they_lie(
    tokens: int, channels: int, dtype: torch.dtype, device: torch.device
) -> None:
    assert taken(given(tokens, channels, dtype), device=device)


@pytest.mark.usefixtures("_a_gpu")
@pytest.mark.parametrize(
    "views",
    [
        given(tokens=257),
        given(tokens=154, channels=160),
        given(channels=72),
        given(channels=512),
        given(dtype=torch.float32),
        # Rows that share a prompt, and values of another length.
        (given()[0], *(x[:1] for x in given()[1:])),
        (*given()[:2], given(tokens=76)[2]),
        # Heads outside tokens, keys and values of two products, and nothing that begins at sixteen bytes.
        (given()[0], *(x.contiguous() for x in given()[1:])),
        (*given()[:2], given()[2].transpose(1, 2).contiguous().transpose(1, 2)),
        tuple(x[..., 1:] for x in given(channels=65)),
        (given(dtype=torch.bfloat16)[0], *given()[1:]),
    ],
)
def test_leaves_others_to_torch(views: tuple[Tensor, ...]) -> None:
    assert not taken(views)


@pytest.mark.usefixtures("_a_gpu")
def test_older_gpus_and_gradients_are_torchs() -> None:
    assert taken(given())
    assert not taken(given(), device=TURING)
    assert not taken(given(), requires_grad=True)


@pytest.mark.usefixtures("_a_gpu")
def test_takes_what_a_layer_asks_with() -> None:
    """Also a part of the prompts of all layers, and a latent that two prompts share."""
    block = BasicTransformerBlock(
        80, num_attention_heads=2, attention_head_dim=40, cross_attention_dim=16, activation_fn="geglu"
    )
    block.half().eval().requires_grad_(False)
    x = torch.randn(1, 32, 80).half()
    prompts = torch.randn(2, 3, 7 * 160).half()[:, 1].unflatten(1, (7, 160))
    seen: list[bool] = []

    def noting(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if key.shape[2] == 7:
            seen.append(taken((query, key, value)))
        return usual(query, key, value, mask)

    Layer(block, Operations(attention=noting), joined_qkv=True)(x, None, None, prompts, None)
    assert seen == [True]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_in_use_is_measured_beside_others(shape: Shape) -> None:
    assert plan_of(shape.channels, shape.tokens) in [way.plan for way in CANDIDATES]


def test_plans_without_room_fetch_nothing_ahead() -> None:
    assert (plan_of(64, 77), plan_of(160, 77)) == (Plan(), Plan(stages=1))


def test_the_table_has_rates_and_evaluations_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    many, large, *_ = SHAPES
    rows = {way.name: Row() for way in WAYS}
    rows["torch's choice"] = Row({many: 100.0, large: 200.0})
    rows["fetched ahead"] = Row({many: 25.0}, {large: "it hung"})
    show(rows)
    lines = capsys.readouterr().out.splitlines()
    # Of 16 × 20 × 64 channels in 1024 + 77 queries and keys, as many results and values; two bytes each.
    assert lines[2].removeprefix("torch's choice").split() == ["0.90", "0.85", "8.00"]
    assert lines[4].removeprefix("fetched ahead").split() == ["3.61", "failed"]
    assert lines[-2].split()[:5] == ["fastest", "fetched", "ahead", "torch's", "choice"]
    assert lines[-1] == "fetched ahead: it hung"
