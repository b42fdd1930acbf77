"""Ratios with their spread, and a warning where the spread is larger than what is claimed."""

from __future__ import annotations

from calotype.bench.sweep.ratios import ratio
from calotype.bench.sweep.table import lines_of, warnings_of
from calotype.spec.records.measurement import Measurement, PeakMemory
from tests.unit.bench.records.conftest import made_up


def rounds(name: str, *medians: float, **changes: object) -> list[Measurement]:
    return [made_up(name, median, round=number, **changes) for number, median in enumerate(medians, start=1)]


def test_rounds_are_compared_one_by_one() -> None:
    # Everything gets slower from round to round; the ratio does not.
    found = ratio(rounds("ours", 1.0, 2.0, 3.0), rounds("theirs", 2.0, 4.0, 6.6))
    assert found
    assert (found.value, found.low, round(found.high, 3), found.rounds) == (2.0, 2.0, 2.2, 3)
    assert found.separated


def test_one_round_has_the_spread_of_its_units() -> None:
    steady = ratio([made_up("a", 1.0, 1.0)], [made_up("b", 2.0, 2.0)])
    shaky = ratio([made_up("a", 1.0, 3.0)], [made_up("b", 2.0, 3.0)])
    assert steady
    assert shaky
    assert (steady.value, steady.low, steady.high, steady.separated) == (2.0, 2.0, 2.0, True)
    assert shaky.value == 1.25
    assert shaky.low < 1 < shaky.high
    assert not shaky.separated
    assert str(shaky).endswith("?")


def test_nothing_is_said_of_what_failed() -> None:
    assert ratio(rounds("ours", 1.0), [made_up("theirs", status="oom")]) is None


def test_the_table_holds_ratios_and_failures() -> None:
    memory = [PeakMemory(allocated_bytes=2**30, reserved_bytes=2**31, device_bytes=None, total_bytes=2**37)]
    settings = {"settings": {"batch": 1, "preset": "fast"}}
    ours = rounds("fast", 1.0, 1.0, memory=memory, samples_per_s=2.0, **settings)
    slow = rounds("slow", 2.0, 2.1, settings={"batch": 1, "preset": "baseline"})
    peer = rounds("peer", 2.0, 2.2, system="diffusers-eager", settings={"batch": 1})
    failed = [made_up("large", status="oom", message="no room", settings={"batch": 2, "preset": "fast"})]
    lines = {line["point"]: line for line in lines_of([*ours, *slow, *peer, *failed])}
    assert lines["fast"]["faster than diffusers-eager"] == "2.10× (2.00–2.20)"
    assert lines["fast"]["peak GiB"] == "2.0"
    assert lines["slow"]["spread"] == "2–2.1"
    assert lines["peer"]["faster than diffusers-eager"] == ""
    large = lines["large"]
    assert (large["status"], large["why"], large["seconds"]) == ("oom", "no room", "")
    assert "TFLOP/s" not in lines["fast"]
    assert "status" not in lines_of(ours)[0], "where all is well nothing is said"
    [warning] = warnings_of([*ours, *slow, *peer, *failed])
    assert warning.startswith("slow: 1.02× as fast as diffusers-eager is within the spread of 1.00 to 1.05")


def test_a_round_that_died_early_does_not_change_the_ratio() -> None:
    dead = made_up("ours", round=1, status="error", samples_per_unit=None)
    ours = [dead, *(made_up("ours", 1.0, 1.0, round=number, samples_per_unit=8) for number in (2, 3))]
    theirs = [made_up("theirs", 2.0, 2.0, round=number, samples_per_unit=8) for number in (1, 2, 3)]
    found = ratio(ours, theirs)
    assert found
    assert found.value == 2.0


def test_a_peer_that_did_other_work_is_no_peer() -> None:
    """Two sweeps in one command, which vary the same and fix something else."""
    settings = {"settings": {"batch": 1}}
    few, many = ({"request": {"steps": steps, "count": 1}, **settings} for steps in (1, 8))
    points = [
        *rounds("ours, few", 1.0, 1.0, **few),
        *rounds("theirs, few", 2.0, 2.0, system="diffusers-eager", **few),
        *rounds("ours, many", 8.0, 8.0, **many),
        *rounds("theirs, many", 24.0, 24.0, system="diffusers-eager", **many),
    ]
    lines = {line["point"]: line["faster than diffusers-eager"] for line in lines_of(points)}
    assert (lines["ours, few"], lines["ours, many"]) == ("2.00× (2.00–2.00)", "3.00× (3.00–3.00)")
