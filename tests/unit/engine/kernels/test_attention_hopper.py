"""Attention with a warp that fetches and teams that attend, on a stand-in for a GPU."""

import inspect
import textwrap

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels import attention_hopper, dispatch
from calotype.engine.kernels.attention import Plan
from tests.unit.engine.kernels.gluon_stand_in import Function, attend
from tests.unit.engine.kernels.thread_interleaving import StuckError

SEEDS = range(3)
SMALL = Plan(queries=16, keys=16)
# (plan, rows, heads, places, channels), on three multiprocessors
CASES = {
    "two teams": (SMALL, 2, 2, 64, 64),
    "one block of keys": (Plan(queries=8, keys=16), 2, 2, 16, 64),
    "two blocks of keys": (SMALL, 1, 3, 32, 64),
    "many blocks of keys": (SMALL, 1, 1, 160, 64),
    "one stage": (Plan(queries=16, keys=16, stages=1), 1, 2, 64, 64),
    "more stages than blocks": (Plan(queries=16, keys=16, stages=4), 2, 2, 32, 64),
    "one team": (Plan(queries=32, keys=16, stages=3, teams=1), 2, 2, 64, 64),
    "three teams, with queries beyond the end": (Plan(queries=16, keys=16, stages=3, teams=3), 2, 2, 64, 64),
    "a team without queries": (SMALL, 1, 2, 16, 64),
    "two teams in turns": (Plan(queries=16, keys=16, turns=True), 2, 2, 64, 64),
    "three teams in turns": (Plan(queries=16, keys=16, teams=3, turns=True), 2, 2, 96, 64),
    "one team in turns with itself": (Plan(queries=16, keys=16, teams=1, turns=True), 1, 2, 64, 64),
    "heads of 40, padded": (SMALL, 2, 3, 64, 40),
    "heads of 40, split": (Plan(queries=16, keys=16, split=True), 2, 3, 64, 40),
    "heads of 40, split, in turns": (
        Plan(queries=16, keys=16, stages=3, split=True, turns=True),
        1,
        3,
        64,
        40,
    ),
    "heads of 48, split": (Plan(queries=16, keys=16, split=True), 1, 2, 64, 48),
}
# What is left out of which function, or is another there. Each is an error on a GPU, if not every time.
MISSING = {
    "wait for queries": ("_attend", "mbarrier.wait(signals[0][0].index(place), turns // 2 % 2)"),
    "wait for the first keys": (
        "_walk",
        "mbarrier.wait(key_full.index(count % stages), count // stages % 2)",
    ),
    "wait for keys": ("_walk", "mbarrier.wait(key_full.index(stage), (count + 1) // stages % 2)"),
    "wait for values": ("_walk", "mbarrier.wait(value_full.index(last), count // stages % 2)"),
    "wait for free places": ("_fetch_one", "mbarrier.wait(signals[1].index(place), (lap + 1) % 2)"),
    "word of free queries": ("_walk", "mbarrier.arrive(signals[0][1].index(place))"),
    "word of free keys": ("_walk", "mbarrier.arrive(key_free.index(stage))"),
    "word of free values": ("_walk", "mbarrier.arrive(value_free.index(last))"),
    "wait for scores": ("_walk", "scores = warpgroup_mma_wait(products, deps=[scores])"),
    "wait for sums": ("_walk", "sums, end, factors = _wait(sums, end, factors, SECOND)"),
    "word of a turn": ("_walk", "mbarrier.arrive(signals[3].index((team + 1) % TEAMS))"),
    "wait for what goes out": ("_attend", "tma.store_wait(0)"),
    "fence": ("_attend", "fence_async_shared()"),
}
OTHERS = {
    "the other phase of keys": ("_walk", "(count + 1) // stages % 2", "count // stages % 2"),
    "scores before they are there": (
        "_walk",
        "warpgroup_mma_wait(products",
        "warpgroup_mma_wait(products + 1",
    ),
    "one team frees for all": ("_attention", "count=TEAMS", "count=1"),
    "too few bytes": ("_fetch_one", "2 * size * (first + SECOND)", "2 * size * first - 2"),
    "all queries in one place": ("_attend", "turns % 2 * TEAMS + team", "team"),
    "what goes out is waited for at the end only": (
        "_attend",
        "        tma.store_wait(0)\n        _tile",
        "        _tile",
    ),
}


def given(rows: int, heads: int, places: int, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """As the forward pass has them: parts of one product, heads inside places."""
    chance = torch.Generator().manual_seed(places)
    joined = torch.randn(rows, places, 3 * heads * channels, generator=chance).half()
    query, key, value = joined.unflatten(-1, (3, heads, channels)).permute(2, 0, 3, 1, 4).unbind()
    return query, key, value


def wanted(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query.double(), key.double(), value.double())


def close(found: Tensor, query: Tensor, key: Tensor, value: Tensor) -> bool:
    # Shares are rounded to eleven bits, and so is the result.
    return torch.allclose(found.double(), wanted(query, key, value), rtol=1e-3, atol=1e-3)


def changed(name: str, old: str, new: str) -> dict[str, Function]:
    """One of the kernel's functions with one of its lines changed."""
    source = textwrap.dedent(inspect.getsource(getattr(attention_hopper, name).fn))
    assert old in source, f"{name} has no such line: {old}"
    found: dict[str, Function] = {}
    text = source[source.index("def ") :].replace(old, new)
    exec("from __future__ import annotations\n" + text, vars(attention_hopper), found)
    return {name: found[name]}


@pytest.fixture(autouse=True)
def _a_small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_MULTIPROCESSORS", 3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_is_attention_whoever_comes_first(name: str, seed: int) -> None:
    plan, *shape = CASES[name]
    query, key, value = given(*shape)
    assert close(attend(query, key, value, plan, seed), query, key, value)


def test_lies_as_the_next_product_reads_it() -> None:
    query, key, value = given(2, 3, 32, 40)
    found = attend(query, key, value, SMALL, 0)
    assert found.shape == query.shape
    assert found.transpose(1, 2).is_contiguous()


def test_scores_far_apart_overflow_nowhere() -> None:
    query, key, value = given(1, 2, 64, 64)
    query, key = query * 30, key * torch.linspace(1, 30, 64)[:, None].half()
    found = attend(query, key, value, SMALL, 0)
    # Scores of thousands, of which half precision keeps what it was given.
    assert close(found, query, key, value)


@pytest.mark.parametrize("name", [*MISSING, *OTHERS])
def test_what_is_left_out_is_noticed(name: str) -> None:
    """The stand-in is worth something only as far as it fails where a GPU would."""
    which, old, new = (*MISSING[name], "pass") if name in MISSING else OTHERS[name]
    broken = changed(which, old, new)
    plan = Plan(queries=16, keys=16, stages=2, turns=True)
    numbers = given(2, 2, 128, 64)
    noticed = False
    for seed in range(40):
        try:
            noticed |= not close(attend(*numbers, plan, seed, broken), *numbers)
        except (AssertionError, StuckError):
            noticed = True
        if noticed:
            return
    pytest.fail(f"{name}: nothing noticed")
