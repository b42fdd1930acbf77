"""A job fails alone, memory that runs out is shared out in smaller pieces, and a stop is heard at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from calotype.serve.ipc.messages import Failed
from calotype.serve.worker import batcher
from calotype.serve.worker.fake_engine import FAULTS, FakeEngine, FakeJobPlan, FakeRun
from calotype.serve.worker.protocols import DeviceLostError, OutOfMemoryError
from calotype.serve.worker.row_limits import RowLimits
from tests.unit.serve.worker.bench import Bench, Shelf

ALONE = ("fault:open", "fault:begin", "fault:evaluate", "fault:sampler", "fault:decode", "fault:encode")


@pytest.mark.parametrize("fault", ALONE)
@pytest.mark.parametrize("place", range(5))
def test_a_failing_job_fails_alone_wherever_it_stands(fault: str, place: int) -> None:
    bench = Bench(most_rows=16)
    names = [f"good {number}" for number in range(4)]
    names.insert(place, fault)
    for name in names:
        bench.add(name, steps=2, count=2)
    bench.to_the_end()
    assert bench.failed() == {fault: "bad_request" if fault == "fault:open" else "internal"}
    assert bench.finished() == set(names) - {fault}
    assert sorted(bench.endings()) == sorted(names)
    for name in bench.finished():
        assert bench.steps(name)[-1] == (4, 4)


def test_every_fault_that_a_job_can_survive_is_tried() -> None:
    assert set(FAULTS) == {*ALONE, "fault:kill", "fault:slow", "fault:hang"}


def test_the_message_says_what_happened() -> None:
    bench = Bench()
    bench.add("fault:sampler")
    bench.to_the_end()
    (news,) = bench.heard(Failed)
    assert "RuntimeError" in news.failure.message
    assert FAULTS["fault:sampler"] in news.failure.message


def test_several_culprits_are_all_found() -> None:
    bench = Bench(most_rows=16)
    names = [f"{'fault:evaluate' if number in (1, 6, 7) else 'good'} {number}" for number in range(9)]
    for name in names:
        bench.add(name, steps=2)
    bench.to_the_end()
    assert set(bench.failed()) == {name for name in names if name.startswith("fault")}
    assert bench.finished() == {name for name in names if name.startswith("good")}


def test_what_was_done_before_a_failure_is_not_repeated() -> None:
    bench = Bench(most_rows=16)
    for number in range(4):
        bench.add(f"good {number}", steps=3)
    bench.turns(1)
    bench.add("fault:evaluate", steps=3)
    bench.to_the_end()
    for number in range(4):
        assert bench.steps(f"good {number}") == [(1, 3), (2, 3), (3, 3)]


def test_out_of_memory_splits_the_batch_and_is_remembered_for_the_shape(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(Shelf(make=lambda: FakeEngine(out_of_memory_over=3)), most_rows=8)
    for number in range(8):
        bench.add(f"job {number}", steps=2)
    with caplog.at_level(logging.WARNING):
        bench.rest()
    # Eight do not fit, nor does half of them; a quarter does, and no more is tried for a while.
    assert bench.engine.rows == [8, 4, 2, 2, 2, 2, *[2] * 4]
    assert "8 rows" in caplog.text
    assert "at most 2" in caplog.text
    for number in range(8):
        bench.add(f"later {number}", steps=1)
    bench.to_the_end()
    assert set(bench.engine.rows[10:]) == {2}
    assert not bench.failed()
    assert len(bench.finished()) == 16


def test_what_did_not_fit_is_tried_again_later_and_less_often_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever else had the memory may have given it back."""
    now = [0.0]
    monkeypatch.setattr(batcher, "RowLimits", partial(RowLimits, clock=lambda: now[0]))
    bench = Bench(Shelf(make=lambda: FakeEngine(out_of_memory_over=2)), most_rows=4)

    def tried_at(minutes: float, name: str) -> int:
        """The most rows that are tried then for four pictures."""
        now[0], before = minutes * 60, len(bench.engine.rows) if bench.shelf.made else 0
        for number in range(4):
            bench.add(f"{name} {number}", steps=1)
        bench.rest()
        return max(bench.engine.rows[before:])

    tried = [tried_at(minutes, str(minutes)) for minutes in (0, 9, 11, 22, 30)]
    assert tried == [4, 2, 4, 2, 2]
    bench.engine.out_of_memory_over = None
    assert [tried_at(32, "then"), tried_at(33, "later")] == [4, 4]
    bench.to_the_end()
    assert not bench.failed()


def test_another_shape_is_not_limited_by_what_one_taught() -> None:
    bench = Bench(Shelf(make=lambda: FakeEngine(out_of_memory_over=4)), most_rows=8)
    for number in range(8):
        bench.add(f"large {number}", steps=1, width=512, height=512)
    for number in range(4):
        bench.add(f"small {number}", steps=1)
    bench.to_the_end()
    assert [f"small {number}" for number in range(4)] in bench.engine.evaluated
    assert not bench.failed()


def test_a_picture_that_does_not_fit_by_itself_fails_and_the_others_go_on() -> None:
    bench = Bench(Shelf(make=lambda: FakeEngine(out_of_memory_over=1)), most_rows=8)
    bench.add("guided", cfg=7.0)
    for name in "abc":
        bench.add(name)
    bench.to_the_end()
    assert bench.failed() == {"guided": "does_not_fit"}
    assert bench.finished() == {"a", "b", "c"}


def test_memory_held_without_need_is_given_back_before_the_next_try() -> None:
    class Reusing(FakeEngine):
        def release_memory(self) -> None:
            self.out_of_memory_over = None

    bench = Bench(Shelf(make=lambda: Reusing(out_of_memory_over=0)))
    bench.add("a")
    bench.add("b")
    bench.to_the_end()
    assert bench.finished() == {"a", "b"}


def test_memory_that_another_model_holds_without_need_is_given_back_too() -> None:
    held = {"others": True}

    class Holding(FakeEngine):
        def release_memory(self) -> None:
            if self is bench.shelf.made["other"]:
                held["others"] = False

        def evaluate(self, *given: Any, **named: Any) -> Any:
            self.out_of_memory_over = 0 if held["others"] and self is bench.engine else None
            return super().evaluate(*given, **named)

    bench = Bench(Shelf(make=Holding))
    bench.load("other")
    bench.add("a")
    bench.to_the_end()
    assert bench.finished() == {"a"}


class Cramped(FakeEngine):
    """Has room for starting or decoding a picture only after it was relieved so many times."""

    refusals, where, relieved = 1, "begin", 0

    def prepare(self, *given: Any) -> FakeJobPlan:
        engine, order = self, super().prepare(*given)

        class Order(FakeJobPlan):
            def begin(self, index: int) -> FakeRun:
                engine.refuse("begin")
                return super().begin(index)

            def finish(self, index: int, run: Any) -> Any:
                engine.refuse("finish")
                return super().finish(index, run)

        return Order(order.parsed)

    def refuse(self, where: str) -> None:
        if where == self.where and self.relieved < self.refusals:
            raise OutOfMemoryError("no room")

    def release_memory(self) -> None:
        self.relieved += 1


@pytest.mark.parametrize("where", ["begin", "finish"])
@pytest.mark.parametrize(("refusals", "failed"), [(1, {}), (2, {"a": "does_not_fit"})])
def test_starting_and_decoding_get_a_second_chance_with_all_memory(
    where: str, refusals: int, failed: dict[str, str]
) -> None:
    engine = Cramped()
    engine.where, engine.refusals = where, refusals
    bench = Bench(Shelf(make=lambda: engine))
    bench.add("a")
    bench.add("b")
    bench.to_the_end()
    assert bench.failed() == failed
    assert bench.finished() == {"a", "b"} - set(failed)


def test_a_lost_device_is_nobodys_failure() -> None:
    class Lost(FakeEngine):
        def evaluate(self, *_: Any, **__: Any) -> Sequence[str]:
            raise DeviceLostError("gone")

    bench = Bench(Shelf(make=Lost))
    bench.add("a")
    with pytest.raises(DeviceLostError):
        bench.batcher.step()
    assert not bench.endings()


def test_a_stop_is_heard_before_the_next_evaluation() -> None:
    bench = Bench()
    bench.add("a", steps=100, count=3)
    bench.add("b", steps=3)
    bench.turns(1)
    bench.batcher.stop("a")
    assert bench.stopped() == {"a"}
    bench.turns(1)
    assert bench.engine.evaluated == [["a", "b", "a", "a"], ["b"]]
    bench.to_the_end()
    assert bench.endings() == ["a", "b"]


def test_a_job_that_waits_can_be_stopped() -> None:
    bench = Bench(most_rows=1)
    bench.add("a", steps=2)
    bench.turns(1)
    bench.add("not opened")
    bench.batcher.stop("not opened")
    bench.add("not begun")
    bench.turns(1)
    bench.batcher.stop("not begun")
    bench.to_the_end()
    assert bench.stopped() == {"not opened", "not begun"}
    assert bench.engine.evaluated == [["a"], ["a"]]


def test_stopping_what_has_ended_or_never_was_says_nothing() -> None:
    bench = Bench()
    bench.add("a")
    bench.to_the_end()
    bench.batcher.stop("a")
    bench.batcher.stop("nobody")
    assert bench.endings() == ["a"]


def test_a_stop_between_the_last_step_and_the_decode_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.add("a", steps=1)
    bench.turns(1)
    bench.batcher.stop("a")
    bench.to_the_end()
    assert bench.endings() == ["a"]
    assert bench.stopped() == {"a"}


def test_the_same_job_twice_is_made_once() -> None:
    bench = Bench()
    bench.add("a")
    bench.add("a")
    bench.turns(1)
    bench.add("a")
    bench.to_the_end()
    assert bench.endings() == ["a"]


def test_a_preview_that_fails_costs_nobody_a_picture() -> None:
    class Blind(FakeEngine):
        def preview(self, _: object) -> bytes:
            raise RuntimeError("nothing to see")

    bench = Bench(Shelf(make=Blind))
    bench.add("a", previews=True)
    bench.to_the_end()
    assert bench.finished() == {"a"}
