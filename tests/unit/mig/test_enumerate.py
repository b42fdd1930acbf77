"""What fits, against a search of another kind over the table's own JSON."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import combinations_with_replacement
from typing import Any

import pytest

from calotype.mig.enumerate import fitting, layouts_by_multiset, why_not
from calotype.mig.layout import Layout, Slice, broken_rules
from calotype.mig.profiles import model_named, table

RAW: dict[str, Any] = json.loads((files("calotype.mig") / "gpus.json").read_text("utf-8"))["gpus"]
ENGINES = ("decoders", "encoders", "jpeg_engines", "ofa_engines")


@cache
def reachable(gpu: str) -> frozenset[tuple[int, ...]]:
    """Every set of profiles that can exist, by adding one placement after another to the empty GPU."""
    profiles = {row["profile_id"]: row for row in RAW[gpu]["profiles"]}
    # The shape of the whole card; of several with the same extent (graphics), the plain one.
    whole = min(profiles.values(), key=lambda row: (-row["memory_slices"], len(row["name"])))
    pairs = [
        (number, start, sum(1 << place for place in range(start, start + row["memory_slices"])))
        for number, row in profiles.items()
        for start in row["starts"]
    ]

    def allowed(numbers: tuple[int, ...]) -> bool:
        counts = Counter(numbers)
        if any(count > profiles[number]["max_instances"] for number, count in counts.items()):
            return False
        for engine in ENGINES:
            needed = sum(profiles[number][engine] or 0 for number in numbers)
            if whole[engine] is not None and needed > whole[engine]:
                return False
        return True

    seen = {(0, ())}
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while waiting:
        mask, numbers = waiting.pop()
        for number, _, bits in pairs:
            grown = (mask | bits, tuple(sorted((*numbers, number))))
            if not mask & bits and grown not in seen and allowed(grown[1]):
                seen.add(grown)
                waiting.append(grown)
    return frozenset(numbers for _, numbers in seen)


def every_bag(gpu: str) -> Iterator[tuple[int, ...]]:
    """Every multiset of profiles up to one more than there is room for."""
    numbers = sorted(row["profile_id"] for row in RAW[gpu]["profiles"])
    for size in range(RAW[gpu]["compute_slices"] + 2):
        yield from combinations_with_replacement(numbers, size)


@pytest.mark.parametrize("gpu", list(RAW))
def test_what_fits_agrees_with_a_brute_force_for_every_multiset(gpu: str) -> None:
    model, known = model_named(gpu), reachable(gpu)
    for bag in every_bag(gpu):
        assert bool(fitting(model, [model.by_id(number) for number in bag])) == (bag in known), bag


@pytest.mark.parametrize("gpu", list(RAW))
def test_every_layout_found_keeps_the_rules_and_is_found_once(gpu: str) -> None:
    model = model_named(gpu)
    layouts = [layout for group in layouts_by_multiset(model).values() for layout in group]
    assert len(set(layouts)) == len(layouts)
    assert not [layout for layout in layouts if list(broken_rules(model, layout))]


@pytest.mark.parametrize("gpu", ["A100-80GB", "A30-24GB"])
def test_every_placement_that_keeps_the_rules_is_found(gpu: str) -> None:
    model = model_named(gpu)
    found = {layout for group in layouts_by_multiset(model).values() for layout in group}
    pairs = [Slice(start, p.profile_id) for p in model.profiles for start in p.starts]
    for first in pairs:
        for second in pairs:
            layout = Layout.of([first, second])
            assert (layout in found) == (not list(broken_rules(model, layout)))


def test_known_rules_of_the_guide() -> None:
    gpu = model_named("A100-40GB")

    def fits(*numbers: int) -> bool:
        return bool(fitting(gpu, [gpu.by_id(number) for number in numbers]))

    assert fits(5, 9), "4g beside 3g"
    assert fits(9, 9)
    assert not fits(9, 9, 19), "3g takes half the memory"
    assert fits(19, 19, 14, 9), "in some order"
    assert fits(*[19] * 7)
    assert not fits(*[19] * 8)
    assert not fits(20, 20), "one slice has the media extensions"


def test_media_engines_are_not_shared() -> None:
    a30 = model_named("A30-24GB")
    assert not fitting(a30, [a30.profile("1g.6gb+me"), a30.profile("2g.12gb+me")])
    pro = model_named("RTX-PRO-6000-Blackwell-96GB")
    everything, plain, without = (pro.profile(f"1g.24gb{end}") for end in ("+me.all", "", "-me"))
    assert not fitting(pro, [everything, plain])
    assert fitting(pro, [everything, without, without, without])


@pytest.mark.parametrize(
    ("numbers", "reason", "advice"),
    [
        ((9, 9, 19), "they need 9 memory slices and there are 8", "2× 3g.40gb or"),
        ((5, 5), "at most 1× 4g.40gb", "1× 4g.40gb would"),
        ((14, 14, 14, 14), "at most 3× 2g.20gb", "3× 2g.20gb would"),
    ],
)
def test_what_does_not_fit_says_why_and_what_would(
    numbers: tuple[int, ...], reason: str, advice: str
) -> None:
    gpu = model_named("A100-80GB")
    words = why_not(gpu, [gpu.by_id(number) for number in numbers])
    assert reason in words
    assert advice in words


def test_all_thirteen_gpus_are_there() -> None:
    assert len(table()) == 13
    assert all(gpu.whole.memory_slices == gpu.memory_slices for gpu in table().values())
