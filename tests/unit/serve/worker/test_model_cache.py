"""Which models are loaded: as many as there is room for, the least recently used go, none that is in use."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import ref

import pytest

from calotype.serve.ipc.messages import Loading, ModelFailed, Models
from calotype.serve.worker.fake_engine import FakeEngine
from calotype.serve.worker.group_scheduler import Group, GroupScheduler
from tests.unit.serve.worker.bench import Bench, Shelf


def names(bench: Bench) -> list[str]:
    return [model.name for model in bench.heard(Models)[-1].models]


def load(bench: Bench, *models: str) -> None:
    for model in models:
        bench.load(model)
    bench.rest()


def test_the_least_recently_used_makes_room() -> None:
    bench = Bench(Shelf(memory_bytes=30))
    load(bench, "a-10", "b-10", "c-10", "a-10", "d-20")
    assert names(bench) == ["a-10", "d-20"]
    last = bench.heard(Models)[-1]
    assert (last.memory_bytes, last.free_bytes) == (30, 0)
    assert bench.shelf.loads == ["a-10", "b-10", "c-10", "d-20"]
    assert bench.shelf.let_go_of == 2


def test_using_a_model_counts_as_use() -> None:
    bench = Bench(Shelf(memory_bytes=20))
    load(bench, "a", "b")
    bench.add("job", model="a")
    bench.rest()
    load(bench, "c")
    assert names(bench) == ["a", "c"]


def test_no_more_goes_than_has_to() -> None:
    bench = Bench(Shelf(memory_bytes=40))
    load(bench, "a", "b", "c-20", "d")
    assert names(bench) == ["b", "c-20", "d"]


def test_a_model_stays_while_jobs_use_it_and_who_needs_its_room_waits() -> None:
    bench = Bench(Shelf(memory_bytes=10))
    bench.add("first", model="a", steps=3)
    bench.turns(1)
    bench.add("second", model="b", steps=1)
    bench.add("third", model="a", steps=1)
    bench.turns(2)
    assert bench.shelf.loads == ["a"]
    assert bench.shelf.described == ["a", "b"], "waiting reads nothing again"
    assert bench.shelf.made["a"].evaluated == [["first"]] * 3, "who came later cannot keep the model in use"
    bench.to_the_end()
    assert bench.shelf.loads == ["a", "b", "a"]
    assert bench.finished() == {"first", "second", "third"}


def test_a_stopped_or_failed_job_holds_no_model() -> None:
    bench = Bench(Shelf(memory_bytes=10))
    bench.add("stopped", model="a", steps=9)
    bench.add("fault:open", model="a")
    bench.add("fault:sampler", model="a")
    bench.turns(2)
    bench.batcher.stop("stopped")
    load(bench, "b")
    assert names(bench) == ["b"]


@dataclass
class Watchful(Shelf):
    """Notes how many of its engines are still there whenever another is loaded."""

    loaded: list[ref[FakeEngine]] = field(default_factory=list)
    at_loads: list[int] = field(default_factory=list)

    def load(self, *_: object) -> FakeEngine:
        self.at_loads.append(sum(known() is not None for known in self.loaded))
        engine = FakeEngine()
        self.loaded.append(ref(engine))
        return engine


def test_pictures_that_nobody_wants_any_more_keep_no_engine() -> None:
    """What it has on the device would lie beside the next model."""
    shelf = Watchful(memory_bytes=10)
    bench = Bench(shelf)
    bench.add("stopped", model="a", steps=1, count=3)
    bench.turns(1)
    bench.batcher.stop("stopped")
    bench.add("next", model="b")
    bench.to_the_end()
    assert bench.finished() == {"next"}
    assert shelf.at_loads == [0, 0]


def test_a_model_too_large_for_the_worker_is_refused_and_nothing_goes_for_it() -> None:
    bench = Bench(Shelf(memory_bytes=20))
    load(bench, "a", "b", "c-21")
    (failed,) = bench.heard(ModelFailed)
    assert failed.model == "c-21"
    assert failed.failure.kind == "does_not_fit"
    assert "21" in failed.failure.message
    assert "20" in failed.failure.message
    assert names(bench) == ["a", "b"]


def test_a_device_with_less_room_than_was_counted_is_emptied_first() -> None:
    bench = Bench(Shelf(really_fits=20))
    load(bench, "a", "b", "c")
    assert names(bench) == ["b", "c"]
    load(bench, "d-30")
    (failed,) = bench.heard(ModelFailed)
    assert failed.failure.kind == "does_not_fit"
    assert bench.heard(Models)[-1].models == ()


def test_no_model_goes_where_it_is_enough_that_all_give_back_what_they_hold_without_need() -> None:
    class Holding(FakeEngine):
        def release_memory(self) -> None:
            bench.shelf.really_fits = 20

    bench = Bench(Shelf(really_fits=10, make=Holding))
    load(bench, "a-10", "b-10")
    assert names(bench) == ["a-10", "b-10"]


def test_a_missing_model_fails_its_loading_and_its_jobs_alone() -> None:
    bench = Bench()
    bench.load("missing")
    bench.add("job", model="missing too")
    bench.add("good")
    bench.to_the_end()
    (failed,) = bench.heard(ModelFailed)
    assert failed.failure.kind == "not_found"
    assert bench.failed() == {"job": "not_found"}
    assert bench.finished() == {"good"}


def test_loading_what_is_there_is_answered_and_loads_nothing() -> None:
    bench = Bench()
    load(bench, "a")
    said = len(bench.heard(Models))
    load(bench, "a")
    assert len(bench.heard(Models)) == said + 1
    assert bench.heard(Models)[-1].asked == "a"
    assert bench.shelf.loads == ["a"]


def test_a_model_is_let_go_at_once_when_nobody_uses_it() -> None:
    bench = Bench()
    load(bench, "a", "b")
    bench.models.unload("a")
    assert names(bench) == ["b"]
    said = len(bench.heard(Models))
    bench.models.unload("never was")
    assert len(bench.heard(Models)) == said + 1
    assert [message.asked for message in bench.heard(Models)] == [None, "a", None, "b", "a", "never was"]


def test_a_model_in_use_is_let_go_after_its_last_job() -> None:
    bench = Bench()
    bench.add("job", model="a", steps=2)
    bench.turns(1)
    bench.models.unload("a")
    assert names(bench) == ["a"]
    bench.to_the_end()
    assert bench.finished() == {"job"}
    assert names(bench) == []
    assert bench.heard(Models)[-1].asked == "a"


def test_names_of_the_same_contents_are_one_model_and_its_hash_is_a_name() -> None:
    bench = Bench()
    bench.add("one", model="a-10", steps=1)
    bench.add("other", model="a-010", steps=1)
    bench.add("by hash", model="sha:a", steps=1)
    bench.to_the_end()
    assert bench.shelf.loads == ["a-10"]
    assert bench.shelf.made["a-10"].evaluated == [["one", "other", "by hash"]]


@pytest.mark.parametrize("label", ["a: loading"])
def test_loading_reports_itself_in_hundredths(label: str) -> None:
    bench = Bench()
    load(bench, "a")
    news = bench.heard(Loading)
    assert {message.label for message in news} == {label}
    assert len(news) == 101
    assert (news[0].done, news[-1].done, news[-1].total) == (0, 400, 400)


def test_each_preset_has_an_engine_of_its_own_and_shares_no_evaluation() -> None:
    bench = Bench()
    bench.add("plain")
    bench.add("quick", preset="fast")
    bench.add("own", preset=bench.shelf.preset)
    bench.add("quick too", preset="fast")
    bench.to_the_end()
    assert bench.finished() == {"plain", "quick", "own", "quick too"}
    assert bench.shelf.loads == ["m", "fast:m"], "the worker's own by name is no other"
    assert bench.engine.evaluated == [["plain", "own"]] * 2
    assert bench.shelf.made["fast:m"].evaluated == [["quick", "quick too"]] * 2
    held = bench.heard(Models)[-1]
    assert [(model.name, model.preset) for model in held.models] == [("m", None), ("m", "fast")]
    assert held.free_bytes == 80, "the weights count for each"


def test_presets_make_room_for_each_other_like_models() -> None:
    bench = Bench(Shelf(memory_bytes=20))
    for preset in ("int8", None, "fast", None, "int8"):
        bench.add(f"with {preset} after {len(bench.messages)}", preset=preset)
        bench.rest()
    assert bench.shelf.loads == ["int8:m", "m", "fast:m", "int8:m"]
    held = bench.heard(Models)[-1].models
    assert [(model.name, model.preset) for model in held] == [("m", None), ("m", "int8")]


def test_unloading_is_answered_when_the_model_is_gone_with_all_its_presets() -> None:
    bench = Bench()
    load(bench, "m")
    bench.add("job", preset="fast", steps=3)
    bench.turns(1)
    bench.models.unload("m")
    said = bench.heard(Models)[-1]
    assert ([model.preset for model in said.models], said.asked) == (["fast"], None)
    bench.rest()
    bench.turns(1)
    last = bench.heard(Models)[-1]
    assert (last.models, last.asked) == ((), "m")
    assert not bench.failed()


def test_loras_stay_merged_into_an_engine_whatever_others_do() -> None:
    turns = GroupScheduler()
    styled, plain = Group("m", ("style",), "s"), Group("m", (), "s", "fast")
    served = [turns.next([styled, plain]) for _ in range(4)]
    assert served == [styled, plain] * 2, "the other preset's weights are its own"


def test_a_model_that_is_wanted_again_before_it_went_stays() -> None:
    bench = Bench(Shelf(memory_bytes=20))
    bench.add("job", model="a", steps=3)
    bench.turns(1)
    bench.models.unload("a")
    load(bench, "a")
    assert bench.heard(Models)[-1].asked == "a"
    assert names(bench) == ["a"]
    bench.models.unload("a")
    assert names(bench) == []
