"""Graphs being run: what runs, in which order, what is told, and how it ends."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from calotype.workflow.cache import Cache, size_bytes
from calotype.workflow.executor import Cached, Executed, Executing, Failed, Finished, Progressed, Started
from calotype.workflow.node_api import LATENT, NodeDef, Output, Step
from calotype.workflow.registry import Registry
from tests.unit.workflow.small_nodes import NODES, PREVIEW, Host, execution, node, of, run, usual


def ran(events: list[Any]) -> list[str]:
    return [event.node for event in of(Executing, events)]


def with_node(name: str, work: Any, **declared: Any) -> Registry:
    return Registry([*NODES, NodeDef(name, work, outputs=(Output(LATENT),), **declared)])


def test_the_usual_graph_tells_its_story_in_order() -> None:
    saved = {"images": [{"filename": "cat_16.png", "subfolder": "", "type": "output"}]}
    assert run(usual()) == [
        Started(("4", "6", "3", "9")),
        Cached(()),
        Executing("4"),
        Executed("4"),
        Executing("6"),
        Executed("6"),
        Executing("3"),
        Progressed("3", 1, 2, PREVIEW),
        Progressed("3", 2, 2),
        Executed("3"),
        Executing("9"),
        Executed("9", {**saved, "text": ["5:a cat by emoji"]}),
        Finished(("4", "6", "3", "9")),
    ]


def test_changing_only_the_seed_runs_only_what_is_below_it() -> None:
    cache = Cache()
    run(usual(seed=5), cache=cache)
    events = run(usual(seed=6), cache=cache)
    assert ran(events) == ["3", "9"]
    assert of(Cached, events) == [Cached(("4", "6"))]
    assert of(Executed, events)[-1].ui["text"] == ["6:a cat by emoji"]


def test_the_same_graph_again_only_saves_again() -> None:
    cache = Cache()
    first, second = run(usual(), cache=cache), run(usual(), cache=cache)
    assert ran(second) == ["9"]
    assert of(Cached, second) == [Cached(("4", "6", "3"))]
    assert of(Executed, second)[-1] == of(Executed, first)[-1]


def test_content_decides_not_names_of_nodes() -> None:
    cache = Cache()
    run(usual(), cache=cache)
    renamed = {
        "x": node("Save", latent=["y", 0]),
        "y": node("Sampler", model=["z", 0], positive=["w", 0], seed=5, steps="2"),
        "w": node("Text", clip=["z", 1], text="a cat"),
        "z": node("Loader", name="emoji"),
    }
    assert ran(run(renamed, cache=cache)) == ["x"]
    renamed["w"]["inputs"]["text"] = "a dog"
    assert ran(run(renamed, cache=cache)) == ["w", "y", "x"]


def test_a_file_that_changes_is_read_again() -> None:
    cache, host = Cache(), Host()
    prompt = {"1": node("Picture", image="cat.png"), "2": node("Save", latent=["1", 0])}
    assert ran(run(prompt, cache=cache, host=host)) == ["1", "2"]
    assert ran(run(prompt, cache=cache, host=host)) == ["2"]
    host.inputs["cat.png"] = b"another cat"
    events = run(prompt, cache=cache, host=host)
    assert ran(events) == ["1", "2"]
    assert of(Executed, events)[-1].ui["text"] == ["another cat"]


def test_two_outputs_of_one_class_differ_by_the_output_that_is_linked() -> None:
    prompt = {
        "1": node("Number", value=3),
        "2": node("Loader", name="emoji"),
        "3": node("Text", text="x", clip=["2", 1]),
        "4": node("Sampler", model=["2", 0], positive=["3", 0], steps=["1", 0]),
        "5": node("Save", latent=["4", 0]),
    }
    events = run(prompt)
    assert len(of(Progressed, events)) == 3


def test_only_what_is_needed_runs() -> None:
    prompt = {**usual(), "20": node("Fail", latent=["3", 0]), "30": node("Save", latent=["20", 0])}
    assert ran(run(prompt, only=["9"])) == ["4", "6", "3", "9"]
    assert ran(run(prompt, only=["6"])) == ["4", "6"]
    del prompt["30"]
    assert ran(run(prompt)) == ["4", "6", "3", "9"]


def test_a_chosen_node_that_is_kept_does_not_run_again() -> None:
    cache = Cache()
    run(usual(), cache=cache)
    assert run(usual(), cache=cache, only=["3"])[-1] == Finished(())


@pytest.mark.parametrize(("which", "runs"), [(True, "1"), (False, "2")])
def test_lazy_inputs_run_only_when_they_are_wanted(which: bool, runs: str) -> None:
    prompt = {
        "1": node("Picture", image="cat.png"),
        "2": node(
            "Fail" if which else "Picture", **({"latent": ["1", 0]} if which else {"image": "cat.png"})
        ),
        "3": node("Switch", which=which, yes=["1", 0], no=["2", 0]),
        "4": node("Save", latent=["3", 0]),
    }
    events = run(prompt)
    assert ran(events) == [runs, "3", "4"]
    assert of(Executed, events)[-1].ui["text"] == [f"a cat, {which}"]


def test_a_lazy_choice_by_a_link() -> None:
    prompt = {
        "0": node("Number", value=0),
        "1": node("Picture", image="cat.png"),
        "3": node("Switch", which=False, yes=["0", 0], no=["1", 0]),
        "4": node("Save", latent=["3", 0]),
    }
    assert ran(run(prompt)) == ["1", "3", "4"]


def test_an_error_names_the_node_and_ends_the_run() -> None:
    prompt = usual()
    prompt["8"] = node("Fail", latent=["3", 0])
    prompt["9"]["inputs"]["latent"] = ["8", 0]
    *_, last = run(prompt)
    assert isinstance(last, Failed)
    assert (last.node, last.class_type) == ("8", "Fail")
    assert last.message == "cannot do 5:a cat by emoji"
    assert last.exception_type == "RuntimeError"
    assert any("_fail" in line for line in last.traceback)
    assert last.executed == ("4", "6", "3")


def test_what_ran_before_an_error_is_kept() -> None:
    cache = Cache()
    prompt = usual()
    prompt["9"]["inputs"]["latent"] = ["8", 0]
    run({**prompt, "8": node("Fail", latent=["3", 0])}, cache=cache)
    assert ran(run(usual(), cache=cache)) == ["9"]


def test_a_node_that_exits_ends_its_run_and_nothing_else() -> None:
    prompt = {**usual(), "8": node("Exit", latent=["3", 0])}
    prompt["9"]["inputs"]["latent"] = ["8", 0]
    last = run(prompt)[-1]
    assert isinstance(last, Failed)
    assert last.exception_type == "SystemExit"


def test_a_failed_run_keeps_none_of_the_nodes_memory() -> None:
    class Large:
        pass

    seen: list[weakref.ref[Large]] = []

    def work(context: Any) -> tuple[str]:
        large = Large()
        seen.append(weakref.ref(large))
        try:
            raise MemoryError("first")
        except MemoryError as error:
            raise RuntimeError("second") from error

    prompt = {"1": node("Heavy"), "2": node("Save", latent=["1", 0])}
    last = run(prompt, registry=with_node("Heavy", work))[-1]
    gc.collect()
    assert isinstance(last, Failed)
    assert seen[0]() is None


def test_closing_cancels_between_two_steps_of_the_running_node() -> None:
    told: list[str] = []

    def work(context: Any) -> Generator[Step, None, tuple[str]]:
        try:
            for number in range(10):
                yield Step(number, 10)
                told.append(f"step {number}")
        finally:
            told.append("closed")
        return ("done",)

    prompt = {"1": node("Long"), "2": node("Save", latent=["1", 0])}
    cache = Cache()
    going = execution(prompt, registry=with_node("Long", work), cache=cache)
    for event in going:
        if isinstance(event, Progressed) and event.value == 3:
            break
    going.close()
    assert told == ["step 0", "step 1", "step 2", "closed"]
    assert len(cache) == 0
    with pytest.raises(StopIteration):
        next(going)


def test_a_node_that_will_not_be_closed_is_cancelled_all_the_same() -> None:
    def work(context: Any) -> Generator[Step, None, tuple[str]]:
        while True:
            try:
                yield Step(1, 2)
            except GeneratorExit:
                yield Step(2, 2)

    prompt = {"1": node("Stubborn"), "2": node("Save", latent=["1", 0])}
    going = execution(prompt, registry=with_node("Stubborn", work))
    next(event for event in going if isinstance(event, Progressed))
    going.close()


@pytest.mark.parametrize("returned", [None, ["x"], (), ("x", "y"), "x"])
def test_a_node_that_does_not_return_what_it_declares(returned: Any) -> None:
    prompt = {"1": node("Odd"), "2": node("Save", latent=["1", 0])}
    last = run(prompt, registry=with_node("Odd", lambda _: returned))[-1]
    assert isinstance(last, Failed)
    assert "declares a tuple of 1: LATENT" in last.message


def test_a_linked_number_is_held_to_the_limits_too() -> None:
    prompt = usual()
    prompt["1"] = node("Number", value=1000)
    prompt["3"]["inputs"]["steps"] = ["1", 0]
    last = run(prompt)[-1]
    assert isinstance(last, Failed)
    assert last.node == "3"
    assert "steps, from node 1: 1000 is above the maximum 100" in last.message


def test_a_package_that_cannot_say_what_changed_is_run_each_time() -> None:
    def broken(*_: object) -> str:
        raise OSError("gone")

    registry = with_node("Odd", lambda _: ("x",), changes=broken)
    prompt, cache = {"1": node("Odd"), "2": node("Save", latent=["1", 0])}, Cache()
    for _ in range(2):
        assert ran(run(prompt, registry=registry, cache=cache)) == ["1", "2"]


def test_a_full_cache_does_not_lose_what_a_run_needs() -> None:
    cache = Cache(most_entries=1)
    prompt = usual()
    prompt["10"] = node("Sampler", model=["4", 0], positive=["6", 0], latent=["3", 0])
    prompt["11"] = node("Save", latent=["10", 0])
    assert isinstance(run(prompt, cache=cache)[-1], Finished)
    assert len(cache) == 1
    no_cache = Cache(most_entries=0)
    assert isinstance(run(prompt, cache=no_cache)[-1], Finished)


def test_values_are_let_go_when_nothing_needs_them() -> None:
    class Large:
        pass

    seen: list[weakref.ref[Large]] = []

    def work(context: Any) -> tuple[Large]:
        large = Large()
        seen.append(weakref.ref(large))
        return (large,)

    prompt = {
        "1": node("Heavy"),
        "2": node("Switch", which=True, yes=["1", 0]),
        "3": node("Save", latent=["2", 0]),
    }
    going = execution(prompt, registry=with_node("Heavy", work), cache=Cache(most_entries=0))
    for event in going:
        if isinstance(event, Executing) and event.node == "2":
            assert seen[0]() is not None
        if isinstance(event, Executed) and event.node == "2":
            break
    gc.collect()
    assert seen[0]() is None
    going.close()


def test_the_cache_is_bounded_by_number_and_by_size_oldest_first() -> None:
    cache = Cache(most_entries=2, most_bytes=1000)
    for key in "abc":
        cache.put(key, (key,))
        cache.get("a")
    assert ["a" in cache, "b" in cache, "c" in cache] == [True, False, True]
    cache = Cache(most_bytes=1000)
    cache.put("a", (memoryview(bytes(600)),))
    cache.put("b", (memoryview(bytes(600)),))
    assert ["a" in cache, "b" in cache] == [False, True]
    cache.put("c", (memoryview(bytes(2000)),))
    assert "b" in cache
    assert "c" not in cache
    assert cache.num_bytes == 600
    cache.clear()
    assert (len(cache), cache.num_bytes) == (0, 0)


def test_sizes_count_what_is_inside_once() -> None:
    tensor = memoryview(bytes(5000))
    assert size_bytes(({"samples": tensor, "again": [tensor]},)) == 5000
