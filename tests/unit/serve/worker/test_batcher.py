"""Who shares an evaluation, who comes next, and how far each is; on an engine that does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from threading import Event
from typing import Any

import pytest
from PIL import Image

from calotype.core.errors import Problem, RequestError
from calotype.serve.ipc.messages import Evaluated, Finished, Stage, Stepped, Work
from calotype.serve.worker.fake_engine import FakeEngine, FakeJobPlan, FakeRun
from calotype.serve.worker.group_scheduler import LORA_QUANTUM, Group, GroupScheduler
from calotype.serve.worker.row_limits import bucket
from tests.unit.serve.worker.bench import Bench, Shelf


def lora(name: str) -> dict[str, Any]:
    return {"loras": [{"name": name}]}


def test_jobs_of_different_kinds_share_evaluations_and_leave_when_they_are_done() -> None:
    bench = Bench()
    bench.add("a", steps=1, cfg=7.0, sampler="heun", seed=1)
    bench.add("b", steps=3)
    bench.add("c", steps=2, cfg=3.0)
    bench.to_the_end()
    assert bench.engine.evaluated == [["a", "b", "c"], ["b", "c"], ["b"]]
    assert bench.engine.rows == [5, 3, 1]
    assert bench.finished() == {"a", "b", "c"}
    assert [(news.rows, news.jobs) for news in bench.heard(Evaluated)] == [(5, 3), (3, 2), (1, 1)]


def test_nobody_waits_for_company_and_who_comes_later_joins_the_next_evaluation() -> None:
    bench = Bench()
    bench.add("first", steps=3)
    bench.turns(1)
    bench.add("second", steps=2)
    bench.to_the_end()
    assert bench.engine.evaluated == [["first"], ["first", "second"], ["first", "second"]]


def test_what_does_not_fit_waits_in_the_order_it_came() -> None:
    bench = Bench(most_rows=2)
    for name in "abcd":
        bench.add(name, steps=1)
    bench.to_the_end()
    assert bench.engine.evaluated == [["a", "b"], ["c", "d"]]


def test_a_picture_larger_than_the_limit_is_evaluated_alone() -> None:
    bench = Bench(most_rows=1)
    bench.add("guided", steps=1, cfg=7.0)
    bench.add("not", steps=1)
    bench.to_the_end()
    assert bench.engine.evaluated == [["guided"], ["not"]]


def test_many_pictures_of_one_job_do_not_keep_others_out() -> None:
    bench = Bench(most_rows=4)
    bench.add("many", steps=1, count=9)
    bench.add("one", steps=1)
    bench.add("two", steps=1, count=2)
    bench.to_the_end()
    assert bench.engine.evaluated[0] == ["many", "one", "two", "many"]
    assert bench.engine.evaluated[1:] == [["many", "two", "many", "many"], ["many"] * 4]
    assert bench.finished() == {"many", "one", "two"}


def test_pictures_come_in_the_order_of_their_seeds() -> None:
    bench = Bench(most_rows=2)
    bench.add("many", steps=1, count=5, seed=100)
    bench.to_the_end()
    (message, files) = next(each for each in bench.messages if isinstance(each[0], Finished))
    assert message.seeds == (100, 101, 102, 103, 104)
    greys = [Image.open(BytesIO(file)).getpixel((0, 0)) for file in files]
    assert greys == [100, 101, 102, 103, 104]
    assert message.widths == message.heights == (8,) * 5
    assert message.request["width"] == 64, "what the engine filled in"


def test_progress_counts_the_steps_of_all_pictures() -> None:
    bench = Bench(most_rows=2)
    bench.add("a", steps=2, count=3)
    bench.to_the_end()
    assert bench.steps("a") == [(2, 6), (4, 6), (5, 6), (6, 6)]


def test_every_job_ends_once_after_its_last_step() -> None:
    bench = Bench(most_rows=3)
    for number in range(20):
        bench.add(f"job {number}", steps=1 + number % 4, count=1 + number % 3, cfg=1.0 + number % 2)
    bench.to_the_end()
    assert sorted(bench.endings()) == sorted(f"job {number}" for number in range(20))
    for number in range(20):
        last = [m for m, _ in bench.messages if getattr(m, "job_id", "") == f"job {number}"][-1]
        assert isinstance(last, Finished)


def test_shapes_take_turns() -> None:
    bench = Bench()
    bench.add("small", steps=3)
    bench.add("large", steps=3, width=512, height=512)
    bench.add("small too", steps=3)
    bench.to_the_end()
    assert bench.engine.evaluated == [["small", "small too"], ["large"]] * 3


def test_models_take_turns() -> None:
    bench = Bench()
    bench.add("one", steps=2)
    bench.add("other", steps=2, model="n")
    bench.turns(2)
    assert bench.engine.evaluated == [["one"]]
    assert bench.shelf.made["n"].evaluated == [["other"]]


def test_lora_sets_keep_their_turn_for_a_while_and_everybody_gets_one() -> None:
    bench = Bench()
    bench.add("plain", steps=20)
    bench.add("styled", steps=20, **lora("style"))
    bench.add("both", steps=20, loras=[{"name": "style"}, {"name": "other"}])
    bench.to_the_end()
    order = [names[0] for names in bench.engine.evaluated]
    stretches = [order[start : start + LORA_QUANTUM] for start in range(0, 48, LORA_QUANTUM)]
    assert stretches == [[name] * LORA_QUANTUM for name in ("plain", "styled", "both") * 2]
    assert order[48:] == ["plain"] * 4 + ["styled"] * 4 + ["both"] * 4


def test_equal_lora_sets_share_and_strengths_tell_them_apart() -> None:
    bench = Bench()
    bench.add("a", steps=1, **lora("style"))
    bench.add("b", steps=1, loras=[{"name": "style", "strength": 0.5}])
    bench.add("c", steps=1, **lora("style"))
    bench.to_the_end()
    assert bench.engine.evaluated == [["a", "c"], ["b"]]


def test_a_lora_set_nobody_uses_any_more_holds_nobody_up() -> None:
    bench = Bench()
    bench.add("short", steps=1, **lora("style"))
    bench.add("plain", steps=2)
    bench.to_the_end()
    assert bench.engine.evaluated == [["short"], ["plain"], ["plain"]]


def test_a_stream_of_newcomers_does_not_starve_who_waits() -> None:
    turns = GroupScheduler()
    patient = Group("m", (), "patient")
    served = [
        turns.next([patient, Group("m", (), f"new {n}"), Group("m", (), f"new {n + 1}")]) for n in range(30)
    ]
    assert served.count(patient) >= 10


def test_the_group_just_served_waits_for_a_newcomer() -> None:
    turns = GroupScheduler()
    old, new = Group("m", (), "old"), Group("m", (), "new")
    assert turns.next([old]) == old
    assert turns.next([old, new]) == new
    assert turns.next([old, new]) == old


@pytest.mark.parametrize("rows", range(1, 65))
def test_buckets_hold_their_rows_are_few_and_waste_little(rows: int) -> None:
    assert bucket(rows) >= rows
    assert bucket(bucket(rows)) == bucket(rows)
    assert bucket(rows) - rows <= max(1, rows / 5)
    if rows % 2 == 0 and rows <= 16:
        assert bucket(rows) == rows
    assert len({bucket(n) for n in range(1, 33)}) == 13


def test_rows_are_filled_up_only_where_new_shapes_cost() -> None:
    for costs, expected in ((True, [6, 4]), (False, [5, 3])):
        bench = Bench(Shelf(make=lambda costs=costs: FakeEngine(shapes_cost=costs)))
        for name, steps in (("a", 1), ("b", 2), ("c", 2)):
            bench.add(name, steps=steps)
        bench.add("guided", steps=1, cfg=2.0)
        bench.to_the_end()
        assert bench.engine.rows == [expected[0], 2]
        bench = Bench(Shelf(make=lambda costs=costs: FakeEngine(shapes_cost=costs)))
        for name in "abc":
            bench.add(name, steps=1)
        bench.to_the_end()
        assert bench.engine.rows == [expected[1]]


def test_filling_up_stays_below_the_limit() -> None:
    bench = Bench(Shelf(make=lambda: FakeEngine(shapes_cost=True)), most_rows=5)
    for name in "abcde":
        bench.add(name, steps=1)
    bench.to_the_end()
    assert bench.engine.rows == [5]


def test_previews_are_made_for_who_looks_and_not_of_every_step() -> None:
    bench = Bench()
    bench.add("watched", steps=24, previews=True)
    bench.add("not", steps=24)
    bench.to_the_end()
    with_preview = [(m.job_id, m.steps_done) for m in bench.heard(Stepped) if m.has_preview]
    assert bench.steps("watched") == bench.steps("not") == [(done, 24) for done in range(1, 25)]
    assert with_preview == [("watched", done) for done in (3, 6, 9, 12, 15, 18, 21)]
    for message, attachments in bench.messages:
        if isinstance(message, Stepped):
            assert len(attachments) == message.has_preview


def test_looking_begins_and_ends_at_any_time() -> None:
    bench = Bench(most_rows=1)
    bench.add("running", steps=4)
    bench.turns(1)
    bench.batcher.set_watched("running", True)
    bench.add("waiting", steps=4)
    bench.batcher.set_watched("waiting", True)
    bench.turns(1)
    bench.batcher.set_watched("running", False)
    bench.batcher.set_watched("nobody", True)
    bench.to_the_end()
    seen = [(m.job_id, m.steps_done) for m in bench.heard(Stepped) if m.has_preview]
    assert seen == [("running", 2), ("waiting", 1), ("waiting", 2), ("waiting", 3)]


@pytest.mark.parametrize(("evaluation_s", "decoded"), [(0.0, 1), (3.5, 4), (100.0, 6)])
def test_decoding_takes_about_as_long_as_an_evaluation_while_others_sample(
    evaluation_s: float, decoded: int
) -> None:
    bench = Bench(Shelf(make=lambda: FakeEngine(evaluation_s=evaluation_s, decode_s=1.0)))
    bench.add("long", steps=4)
    for number in range(6):
        bench.add(f"short {number}", steps=1)
    bench.turns(2)
    assert len(bench.engine.evaluated) == 2
    # Files are made by threads, which end here; the batcher goes on by itself.
    bench.finishing.close()
    assert bench.finished() == {f"short {number}" for number in range(decoded)}


def test_what_is_done_for_the_first_time_is_told_before_it_is_done() -> None:
    """So that a server does not take a worker that compiles for one that hangs."""
    bench = Bench(most_rows=2)
    seen: list[list[str | None]] = []

    class Looking(FakeEngine):
        def evaluate(self, *given: Any, **named: Any) -> Any:
            seen.append([stage.label for stage in bench.heard(Stage)])
            return super().evaluate(*given, **named)

    bench.shelf.make = Looking
    bench.add("a", steps=3)
    bench.rest()
    loading = ["reading m", None, "loading m", None]
    shape = "of m at (64, 64)"
    first = [
        *(f"the first beginning {shape}", None),
        f"the first evaluation of 1 rows {shape}",
    ]
    assert seen[0] == [*loading, *first]
    assert seen[2] == [*loading, *first, None]
    told = len(bench.heard(Stage))
    bench.add("b", steps=3)
    bench.rest()
    assert len(bench.heard(Stage)) == told
    bench.add("c", width=128)
    bench.to_the_end()
    assert len(bench.heard(Stage)) == told + 6


LONG_TEXT = 5
"""Slices of a prompt that begins with `long`."""
Events = list[str]


class SlicedEngine(FakeEngine):
    """Reads prompts whose name begins with `long` in slices, and notes what it does in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: Events = []

    def prepare(self, work: Work, given: Sequence[bytes]) -> FakeJobPlan:
        events, asked = self.events, super().prepare(work, given).parsed

        class Order(FakeJobPlan):
            @property
            def text_size(self) -> int:
                return 16 if asked.prompt.startswith("long") else 1

            def preparation(self) -> Iterator[None] | None:
                return slices() if asked.prompt.startswith("long") else None

        def slices() -> Iterator[None]:
            for number in range(LONG_TEXT):
                events.append(f"{asked.prompt} {number}")
                if asked.prompt == "long broken" and number == 2:
                    raise RuntimeError("no such word")
                yield

        return Order(asked)

    def evaluate(self, runs: Sequence[FakeRun], **more: Any) -> Sequence[str]:
        self.events.append("+".join(run.prompt for run in runs))
        return super().evaluate(runs, **more)


def sliced() -> tuple[Bench, Events]:
    bench = Bench(Shelf(make=SlicedEngine))
    bench.load("m")
    bench.turns(1)
    engine = bench.engine
    assert isinstance(engine, SlicedEngine)
    return bench, engine.events


def test_a_long_text_is_read_in_slices_between_which_others_are_evaluated() -> None:
    bench, events = sliced()
    bench.add("long", steps=1)
    bench.add("short", steps=3)
    bench.to_the_end()
    assert events == [
        *("long 0", "short", "long 1", "short", "long 2", "short"),
        *("long 3", "long 4", "long"),
    ]
    assert bench.endings() == ["short", "long"]


def test_long_texts_take_turns_and_only_one_slice_comes_between_two_evaluations() -> None:
    bench, events = sliced()
    for name in ("long one", "long two"):
        bench.add(name, steps=1)
    bench.add("short", steps=4)
    bench.to_the_end()
    assert events[:8] == [
        *("long one 0", "short", "long two 0", "short", "long one 1", "short", "long two 1", "short")
    ]
    assert bench.finished() == {"long one", "long two", "short"}


def test_an_evaluation_with_a_long_text_counts_as_several_turns() -> None:
    """A job with a usual prompt is not done later for each step of one with a long prompt."""
    bench, events = sliced()
    bench.add("long", steps=4)
    bench.turns(LONG_TEXT + 1)
    bench.add("short", steps=8)
    del events[:]
    bench.to_the_end()
    assert events == ["short"] * 3 + ["long"] + ["short"] * 4 + ["long", "short", "long"]


def test_a_job_is_stopped_or_fails_while_its_long_text_is_read() -> None:
    bench, events = sliced()
    for name in ("long stopped", "long broken", "long done"):
        bench.add(name, steps=1)
    bench.turns(2)
    bench.batcher.stop("long stopped")
    bench.to_the_end()
    assert bench.stopped() == {"long stopped"}
    assert bench.failed() == {"long broken": "internal"}
    assert bench.finished() == {"long done"}
    assert [event for event in events if event.startswith("long stopped")] == ["long stopped 0"]


class WaitingEngine(FakeEngine):
    """Decodes a job's image once the test says `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.go = Event()

    def read(self, work: Work, attachments: Sequence[bytes]) -> Sequence[bytes]:
        if attachments:
            assert self.go.wait(60)
        if "broken" in work.job_id:
            raise RequestError([Problem("image", "is not an image")])
        return super().read(work, attachments)


def test_others_are_evaluated_and_end_while_a_start_image_is_decoded() -> None:
    bench = Bench(Shelf(make=WaitingEngine))
    bench.load("m")
    bench.turns(1)
    engine = bench.engine
    assert isinstance(engine, WaitingEngine)
    for name in ("large", "large stopped", "large broken"):
        request = {"prompt": name, "steps": 1, "cfg": 1.0}
        bench.batcher.add(Work(job_id=name, model="m", request=request, has_image=True), [b"image"])
    bench.add("short", steps=3)
    bench.turns(4)
    assert engine.evaluated == [["short"]] * 3
    bench.batcher.stop("large stopped")
    engine.go.set()
    bench.to_the_end()
    assert engine.evaluated[3:] == [["large"]]
    assert (bench.stopped(), bench.failed()) == ({"large stopped"}, {"large broken": "bad_request"})
    assert bench.finished() == {"short", "large"}
