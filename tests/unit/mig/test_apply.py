"""A change ends in the target or in exactly what was there, whatever call fails, and touches no more."""

from contextlib import suppress
from itertools import count, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calotype.core.errors import CalotypeError, DoesNotFitError
from calotype.mig.apply import ApplyError, apply, apply_all, prepare, restore
from calotype.mig.driver import DriverError, GpuState, Refusal
from calotype.mig.enumerate import layouts_by_multiset
from calotype.mig.layout import EMPTY, OFF, ComputePart, Layout, Slice
from calotype.mig.layout_file import parse_layouts, targets
from calotype.mig.planner import places_for
from calotype.mig.profiles import GpuModel, model_named, table
from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.simulation.fake_host import FakeHost, Holder, new_host

SEED = Layout.of([Slice(0, 14), Slice(2, 14), Slice(4, 14), Slice(6, 20)])


def every_layout(gpu: GpuModel) -> list[Layout]:
    return [OFF, *(layout for group in layouts_by_multiset(gpu).values() for layout in group)]


def cut(tmp_path: Path, model: str, layout: Layout, **settings: bool) -> tuple[FakeHost, SimulatedDriver]:
    """A machine that is cut so already."""
    host = new_host(model, **settings)
    driver = SimulatedDriver(host)
    apply(driver, 0, layout, tmp_path / "first.json")
    host.calls, host.log = 0, []
    return host, driver


def check_every_failure(
    tmp_path: Path, model: str, former: Layout, target: Layout, *, late: bool, again_after: int = 0
) -> None:
    """Fail each call in turn, and one soon after, until a run has no call left to fail."""
    for number in count(1):
        host, driver = cut(tmp_path, model, former)
        (before,) = driver.read()
        host.calls, host.fail_at, host.fail_late = 0, [number, number + again_after], late
        failed = None
        try:
            apply(driver, 0, target, tmp_path / "saved.json")
        except (ApplyError, DriverError) as error:
            failed = error
        reached, host.fail_at = host.calls >= number, []
        (after,) = driver.read()
        if failed is None:
            assert after.layout == target, number
        else:
            assert after == before, (number, str(failed))
            assert getattr(failed, "restored", True)
        if not reached:
            assert failed is None
            assert former == target or number > 2, "a change has calls that can fail"
            return


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_layout_to_any_other_with_a_failure_at_every_call(data: st.DataObject, tmp_path: Path) -> None:
    model = data.draw(st.sampled_from(list(table())))
    layouts = every_layout(model_named(model))
    former, target = data.draw(st.sampled_from(layouts)), data.draw(st.sampled_from(layouts))
    check_every_failure(tmp_path, model, former, target, late=data.draw(st.booleans()))


@pytest.mark.parametrize("late", [False, True])
def test_hard_changes_with_a_failure_at_every_call(tmp_path: Path, late: bool) -> None:
    sevenfold = Layout.of([Slice(start, 19) for start in range(7)])
    inside = Layout.of([Slice(0, 9, (ComputePart(0, 0, 1), ComputePart(1, 1, 2))), Slice(4, 9, ())])
    for former, target in ((sevenfold, SEED), (OFF, SEED), (SEED, OFF), (inside, SEED), (SEED, inside)):
        check_every_failure(tmp_path, "A100-80GB", former, target, late=late)


@pytest.mark.parametrize("again_after", range(1, 7))
def test_a_second_failure_on_the_way_back_is_survived(tmp_path: Path, again_after: int) -> None:
    target = Layout.of([Slice(0, 9), Slice(4, 14), Slice(6, 19)])
    check_every_failure(tmp_path, "A100-80GB", SEED, target, late=False, again_after=again_after)
    check_every_failure(tmp_path, "A100-80GB", SEED, OFF, late=True, again_after=again_after)


def test_every_layout_to_every_other_on_a_small_gpu_touches_only_what_differs(tmp_path: Path) -> None:
    layouts = every_layout(model_named("A30-24GB"))
    states: dict[Layout, GpuState] = {}
    for layout in layouts:
        _, driver = cut(tmp_path, "A30-24GB", layout)
        (states[layout],) = driver.read()
    for former, target in product(layouts, layouts):
        change = prepare(states[former], target)
        common = set(former.slices) & set(target.slices)
        assert {(each.start, each.profile_id) for each in change.kept} == {
            (part.start, part.profile_id) for part in common
        }
        assert bool(change.steps) == (former != target)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nothing_idle_is_destroyed_that_could_stay(data: st.DataObject, tmp_path: Path) -> None:
    gpu = model_named(data.draw(st.sampled_from(list(table()))))
    layouts = every_layout(gpu)[1:]
    former = data.draw(st.sampled_from(layouts))
    bag = data.draw(st.sampled_from(list(layouts_by_multiset(gpu))))
    host, driver = cut(tmp_path, gpu.name, former)
    target = places_for(gpu, [gpu.by_id(number) for number in bag], former)
    most = max(len(set(layout.slices) & set(former.slices)) for layout in layouts_by_multiset(gpu)[bag])
    apply(driver, 0, target, tmp_path / "saved.json")
    destroyed = [line for line in host.log if ": destroyed" in line and "compute" not in line]
    assert len(destroyed) == len(former.slices) - most
    assert driver.read()[0].layout == target


def test_the_saved_file_is_the_way_back(tmp_path: Path) -> None:
    _, driver = cut(tmp_path, "A100-80GB", SEED)
    before = driver.read()
    applied = apply(driver, 0, Layout.of([Slice(0, 9), Slice(4, 9)]), tmp_path / "saved.json")
    assert applied.saved is not None
    back = targets(parse_layouts(applied.saved.read_text(), "saved"), driver.read())
    apply(driver, 0, back[0], tmp_path / "again.json")
    assert driver.read() == before, "ids and UUIDs included"


def test_the_same_again_changes_nothing_and_saves_nothing(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    applied = apply(driver, 0, SEED, tmp_path / "saved.json")
    assert (applied.change.steps, applied.saved, host.log) == ((), None, [])
    assert not (tmp_path / "saved.json").exists()


def test_a_slice_in_use_is_not_touched_and_its_process_is_named(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    host.cards[0].holders.append(Holder(4711, "python3", host.cards[0].cuts[2].gi))
    with pytest.raises(
        DriverError, match=r"2g\.20gb at 4 \(GPU instance 5\) is in use by process 4711 \(python3\)"
    ):
        apply(driver, 0, EMPTY, tmp_path / "saved.json")
    assert host.log == []
    # What is idle may go, and what is in use stays.
    apply(driver, 0, Layout.of([Slice(4, 14)]), tmp_path / "saved.json")
    assert [each.start for each in driver.read()[0].instances] == [4]


def test_a_process_that_comes_between_check_and_change_costs_nothing(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    (before,) = driver.read()
    destroy = driver.destroy_compute

    def late_guest(gpu: int, gi_id: int, ci_id: int) -> None:
        destroy(gpu, gi_id, ci_id)
        if not host.cards[0].holders:
            host.cards[0].holders.append(Holder(99, "guest", 13))

    driver.destroy_compute = late_guest  # type: ignore[method-assign]
    with pytest.raises(ApplyError, match=r"In use by another client.*the former layout is restored"):
        apply(driver, 0, EMPTY, tmp_path / "saved.json")
    (after,) = driver.read()
    host.cards[0].holders.clear()
    assert driver.read()[0] == before
    assert after.layout == before.layout


def test_a_driver_that_stays_broken_says_where_the_layout_is(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    host.fail_at = list(range(5, 500))
    with pytest.raises(ApplyError, match=r"NOT restored.*calotype mig restore .*saved\.json --yes") as told:
        apply(driver, 0, EMPTY, tmp_path / "saved.json")
    assert not told.value.restored
    host.fail_at = []
    back = targets(parse_layouts((tmp_path / "saved.json").read_text(), "saved"), driver.read())
    apply(driver, 0, back[0], tmp_path / "again.json")
    assert driver.read()[0].layout == SEED


@pytest.mark.parametrize("late", [False, True])
def test_of_several_gpus_all_change_or_none(tmp_path: Path, late: bool) -> None:
    target = {0: Layout.of([Slice(0, 9), Slice(4, 9)]), 1: SEED}
    also_put_back = 0
    for number in count(1):
        host = new_host("A100-80GB", "A100-80GB")
        driver = SimulatedDriver(host)
        apply_all(driver, {0: SEED, 1: EMPTY}, lambda gpu: tmp_path / f"first{gpu}.json")
        before = driver.read()
        host.calls, host.fail_at, host.fail_late = 0, [number], late
        failed = None
        try:
            apply_all(driver, target, lambda gpu: tmp_path / f"saved{gpu}.json")
        except CalotypeError as error:
            failed = error
        reached, host.fail_at = host.calls >= number, []
        if failed is None:
            assert [state.layout for state in driver.read()] == list(target.values())
        else:
            assert driver.read() == before, (number, str(failed))
            also_put_back += "of GPU 0 is restored too" in str(failed)
        if not reached:
            assert also_put_back > 2
            return


def test_interruption_puts_everything_back(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    (before,) = driver.read()
    create = driver.create

    def interrupted(gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        if not any("made" in line for line in host.log):
            create(gpu, profile_id, start, with_compute=with_compute)
            raise KeyboardInterrupt
        return create(gpu, profile_id, start, with_compute=with_compute)

    driver.create = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        apply(driver, 0, Layout.of([Slice(0, 9), Slice(4, 9)]), tmp_path / "saved.json")
    assert driver.read()[0] == before


def test_a_second_interruption_is_said_if_it_leaves_anything_undone(tmp_path: Path) -> None:
    _, driver = cut(tmp_path, "A100-80GB", SEED)
    (before,) = driver.read()
    create, interrupts = driver.create, iter([True] * 5)

    def interrupted(gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return create(gpu, profile_id, start, with_compute=with_compute)

    driver.create = interrupted  # type: ignore[method-assign]
    with pytest.raises(ApplyError, match=r"NOT restored; it is saved: calotype mig restore .*saved\.json"):
        apply(driver, 0, Layout.of([Slice(0, 9), Slice(4, 9)]), tmp_path / "saved.json")
    interrupts = iter([True] * 2)
    assert restore(driver, before), "pressed twice more, and put back nevertheless"


def test_a_driver_that_says_yes_and_does_something_else_is_found_out(tmp_path: Path) -> None:
    _, driver = cut(tmp_path, "A100-80GB", EMPTY)
    create = driver.create
    lied: list[int] = []

    def elsewhere(gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        if not lied:
            lied.append(start)
            return create(gpu, profile_id, start + 2, with_compute=with_compute)
        return create(gpu, profile_id, start, with_compute=with_compute)

    driver.create = elsewhere  # type: ignore[method-assign]
    with pytest.raises(
        ApplyError, match=r"reading it back shows 2g\.20gb at 2 instead of 2g\.20gb at 0.*is restored"
    ):
        apply(driver, 0, Layout.of([Slice(0, 14)]), tmp_path / "saved.json")
    assert driver.read()[0].layout == EMPTY


def test_mode_on_ampere_hopper_and_in_a_virtual_machine(tmp_path: Path) -> None:
    for model in ("A100-80GB", "H100-80GB-SXM5"):
        host = new_host(model)
        applied = apply(SimulatedDriver(host), 0, SEED, tmp_path / "saved.json")
        assert applied.after.layout == SEED
        assert not applied.waits_for_reboot
    host = new_host("A100-80GB", passthrough=True)
    driver = SimulatedDriver(host)
    for _ in range(2):
        applied = apply(driver, 0, SEED, tmp_path / "saved.json")
        assert applied.waits_for_reboot
        assert (applied.after.mode.current, applied.after.mode.pending) == (False, True)
    assert sum("mode on" in line for line in host.log) == 1, "asked for once, one reboot"


@pytest.mark.parametrize("late", [False, True])
def test_a_virtual_machine_with_a_failure_at_every_call(tmp_path: Path, late: bool) -> None:
    for number in count(1):
        host = new_host("A100-80GB", passthrough=True)
        driver = SimulatedDriver(host)
        (before,) = driver.read()
        host.calls, host.fail_at, host.fail_late = 0, [number], late
        waits = False
        with suppress(ApplyError, DriverError):
            waits = apply(driver, 0, SEED, tmp_path / "saved.json").waits_for_reboot
        reached, host.fail_at = host.calls >= number, []
        (after,) = driver.read()
        assert after.mode.pending is waits
        assert waits or after == before
        if not reached:
            assert waits
            return


def test_a_held_card_is_not_reset(tmp_path: Path) -> None:
    host = new_host("A100-80GB")
    host.cards[0].holders.append(Holder(77, "nvidia-persistenced"))
    with pytest.raises(DriverError, match=r"the whole GPU is in use by process 77 \(nvidia-persistenced\)"):
        apply(SimulatedDriver(host), 0, SEED, tmp_path / "saved.json")
    assert host.log == []


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [("is_root", Refusal.NO_PERMISSION), ("loaded", Refusal.NO_DRIVER)],
)
def test_no_permission_and_no_driver_change_nothing(tmp_path: Path, spoil: str, refusal: Refusal) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    before = [(each.gi, each.start) for each in host.cards[0].cuts]
    setattr(host, spoil, False)
    with pytest.raises(CalotypeError) as told:
        apply(driver, 0, EMPTY, tmp_path / "saved.json")
    cause = told.value if isinstance(told.value, DriverError) else told.value.__cause__
    assert isinstance(cause, DriverError)
    assert cause.refusal is refusal
    assert [(each.gi, each.start) for each in host.cards[0].cuts] == before


def test_a_lost_card_is_said_to_be_lost(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", SEED)
    host.cards[0].lost = True
    with pytest.raises(DriverError, match=r"GPU is lost; .*reboot"):
        apply(driver, 0, EMPTY, tmp_path / "saved.json")


def test_layouts_that_break_a_rule_are_refused_before_anything(tmp_path: Path) -> None:
    host, driver = cut(tmp_path, "A100-80GB", EMPTY)
    bad = {
        Layout.of([Slice(1, 14)]): "cannot start at memory slice 1",
        Layout.of([Slice(0, 9), Slice(2, 14)]): "share memory slice 2",
        Layout.of([Slice(0, 20), Slice(1, 20)]): "allows 1",
        Layout(False, (Slice(0, 9),)): "need MIG mode",
    }
    for layout, rule in bad.items():
        with pytest.raises(DoesNotFitError, match=rule):
            apply(driver, 0, layout, tmp_path / "saved.json")
    assert host.log == []
