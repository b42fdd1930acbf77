"""How many share an evaluation, by what evaluations take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calotype.serve.worker.batch_policy import BatchPolicy
from calotype.serve.worker.fake_engine import FakeEngine, FakeRun
from calotype.serve.worker.protocols import About
from tests.unit.serve.worker.bench import Bench, Shelf

SHAPE = "shape"


@dataclass
class Taking(FakeEngine):
    """An engine whose evaluations take a while, and some more for every row; they are told one later."""

    fixed_s: float = 0.0
    each_s: float = 0.0
    _asked: tuple[About | None, float] = (None, 0.0)

    def evaluate(
        self, runs: Sequence[FakeRun], *, least_rows: int, about: About | None = None
    ) -> Sequence[str]:
        answers = super().evaluate(runs, least_rows=least_rows)
        self.evaluation_about, self.evaluation_s = self._asked
        self._asked = about, self.fixed_s + self.each_s * self.rows[-1]
        return answers


@dataclass
class Costly(Taking):
    """One picture keeps it busy."""

    each_s: float = 1.0


@dataclass
class Roomy(Taking):
    """Eight pictures take hardly longer than one."""

    fixed_s: float = 1.0
    each_s: float = 0.01


def after_all_sizes(engine: type[Taking]) -> Bench:
    """A bench that has seen evaluations of up to eight rows."""
    bench = Bench(Shelf(make=engine), most_rows=8)
    for number in range(8):
        bench.add(f"early {number}", steps=40)
        bench.turns(3)
    bench.rest()
    bench.engine.evaluated.clear()
    return bench


def known(seconds: dict[int, float]) -> BatchPolicy:
    sharing = BatchPolicy()
    for rows, taken in seconds.items():
        for _ in range(2):
            sharing.learn(SHAPE, rows, taken)
    return sharing


def test_a_long_job_does_not_keep_a_short_one_waiting() -> None:
    bench = after_all_sizes(Costly)
    bench.add("long", steps=5)
    bench.turns(2)
    bench.add("short", steps=2)
    bench.to_the_end()
    assert bench.engine.evaluated == [["long"]] * 2 + [["short"]] * 2 + [["long"]] * 3


def test_a_job_of_many_pictures_does_not_keep_one_of_a_single_picture_waiting() -> None:
    bench = after_all_sizes(Costly)
    bench.add("many", steps=2, count=3)
    bench.turns(1)
    bench.add("one", steps=2)
    bench.to_the_end()
    assert bench.engine.evaluated[:2] == [["many"] * 2, ["one", "many"]]
    assert {"many", "one"} <= bench.finished()


def test_where_one_keeps_the_device_busy_the_older_half_goes_first() -> None:
    bench = after_all_sizes(Costly)
    for name in "abcd":
        bench.add(name, steps=2)
    bench.to_the_end()
    assert bench.engine.evaluated == [["a", "b"]] * 2 + [["c"]] * 2 + [["d"]] * 2
    assert {"a", "b", "c", "d"} <= bench.finished()


def test_where_there_is_room_all_share() -> None:
    bench = after_all_sizes(Roomy)
    for name in "abcd":
        bench.add(name, steps=2)
    bench.to_the_end()
    assert bench.engine.evaluated == [["a", "b", "c", "d"]] * 2


def test_who_comes_while_others_are_under_way_begins_when_it_is_their_turn() -> None:
    bench = after_all_sizes(Costly)
    bench.add("a", steps=3)
    bench.turns(1)
    bench.add("b", steps=3)
    bench.to_the_end()
    assert bench.engine.evaluated == [["a"]] * 3 + [["b"]] * 3


def test_a_long_job_has_its_turn_while_short_ones_keep_coming() -> None:
    bench = after_all_sizes(Costly)
    bench.add("long", steps=50)
    for number in range(60):
        bench.add(f"short {number}", steps=2)
        bench.turns(2)
    shared = ["long" in names for names in bench.engine.evaluated]
    # Others come first as often as it has steps itself, and no more often.
    assert sum(shared) == 50
    assert shared.index(True) < shared.index(False) + 51
    assert len(shared) - shared[::-1].index(True) <= 101


def test_nobody_waits_for_what_is_not_known() -> None:
    assert BatchPolicy().rows(SHAPE, wanted=8, most=8) == 8
    assert known({4: 4.0}).rows(SHAPE, wanted=8, most=8) == 8
    assert known({8: 8.0}).rows(SHAPE, wanted=8, most=8) == 8
    assert known({4: 4.0, 8: 8.0}).rows("another", wanted=8, most=8) == 8


def test_the_first_evaluation_of_a_size_says_nothing_of_its_time() -> None:
    sharing = known({8: 8.0})
    sharing.learn(SHAPE, 4, 4.0)
    assert sharing.rows(SHAPE, wanted=8, most=8) == 8
    sharing.learn(SHAPE, 4, 4.0)
    assert sharing.rows(SHAPE, wanted=8, most=8) == 4


def test_as_few_as_are_as_fast_and_at_least_half() -> None:
    linear = {rows: rows + 0.1 for rows in range(1, 9)}
    assert known(linear).rows(SHAPE, wanted=8, most=8) == 4
    assert known(linear).rows(SHAPE, wanted=3, most=3) == 2
    slow_in_small = {2: 2.4, 4: 4.4, 6: 6.2, 8: 8.0}
    assert known(slow_in_small).rows(SHAPE, wanted=8, most=8) == 6


def test_more_than_fit_leave_nothing_to_choose() -> None:
    """Twice as many as an evaluation holds: it is full, whatever the rest would take."""
    linear = {rows: float(rows) for rows in range(1, 9)}
    assert known(linear).rows(SHAPE, wanted=16, most=8) == 8
    assert known(linear).rows(SHAPE, wanted=12, most=8) == 6


def test_a_device_that_has_become_slower_is_noticed() -> None:
    sharing = known({4: 4.0, 8: 8.0})
    for _ in range(8):
        sharing.learn(SHAPE, 4, 6.0)
    assert sharing.rows(SHAPE, wanted=8, most=8) == 8
