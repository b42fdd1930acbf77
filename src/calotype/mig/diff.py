"""Computes the steps from the current layout to a target: only the differences, in a safe order.

Compute instances are destroyed before their slices, slices before others are created, and each is created at
an explicit placement, so that the order of creation does not matter. Every step has its nvidia-smi command.
"""

from dataclasses import dataclass, replace

from calotype.mig.driver import DriverError, GpuState, Instance, MigDriver, Refusal
from calotype.mig.layout import ComputePart, Layout, Slice, usual_part


@dataclass(frozen=True)
class SetMode:
    enabled: bool

    def command(self, gpu: int) -> str:
        return f"nvidia-smi -i {gpu} -mig {int(self.enabled)}"


@dataclass(frozen=True)
class Reset:
    """Needed if the mode does not take effect by itself."""

    def command(self, gpu: int) -> str:
        return f"nvidia-smi -i {gpu} --gpu-reset"


@dataclass(frozen=True)
class DestroyCompute:
    gi_id: int
    ci_id: int

    def command(self, gpu: int) -> str:
        return f"nvidia-smi mig -i {gpu} -dci -gi {self.gi_id} -ci {self.ci_id}"


@dataclass(frozen=True)
class Destroy:
    gi_id: int

    def command(self, gpu: int) -> str:
        return f"nvidia-smi mig -i {gpu} -dgi -gi {self.gi_id}"


@dataclass(frozen=True)
class Create:
    profile_id: int
    start: int
    with_compute: bool

    def command(self, gpu: int) -> str:
        usual = " -C" if self.with_compute else ""
        return f"nvidia-smi mig -i {gpu} -cgi {self.profile_id}:{self.start}{usual}"


@dataclass(frozen=True)
class CreateCompute:
    slice_start: int
    part: ComputePart
    gi_id: int | None
    """None while its slice does not exist."""

    def command(self, gpu: int) -> str:
        where = f"ID_OF_THE_SLICE_AT_{self.slice_start}" if self.gi_id is None else self.gi_id
        return f"nvidia-smi mig -i {gpu} -cci {self.part.profile_id} -gi {where}"


Step = SetMode | Reset | DestroyCompute | Destroy | Create | CreateCompute


@dataclass(frozen=True)
class Change:
    """All steps of one GPU."""

    steps: tuple[Step, ...]
    kept: tuple[Instance, ...]
    """Slices that stay unchanged."""
    touched: tuple[Instance, ...]
    """Slices that are removed, or whose compute instances change; they must be idle."""

    def commands(self, gpu: int) -> list[str]:
        return [step.command(gpu) for step in self.steps]


def back_to(former: GpuState, current_state: GpuState) -> Change:
    """The steps back to a former state. Ids follow the order of creation, so that order is restored too."""
    ids = {(each.start, part.part): part.ci_id for each in former.instances for part in each.compute}
    change = diff(current_state, former.layout)

    def order(step: Step) -> int:
        return ids.get((step.slice_start, step.part), 0) if isinstance(step, CreateCompute) else 0

    first = [step for step in change.steps if not isinstance(step, CreateCompute)]
    last = sorted((step for step in change.steps if isinstance(step, CreateCompute)), key=order)
    return replace(change, steps=(*first, *last))


def diff(state: GpuState, target: Layout) -> Change:
    """The steps from `state` to `target`; none if they are equal."""
    target_slices = {(part.start, part.profile_id): part for part in target.slices}
    current = {(part.start, part.profile_id): part for part in state.layout.slices}
    compute_steps: list[Step] = []
    destroy_steps: list[Step] = []
    make_steps: list[Step] = []
    kept, touched = [], []
    for instance in state.instances:
        placement = (instance.start, instance.profile_id)
        if target_slices.get(placement) == current[placement]:
            kept.append(instance)
            continue
        touched.append(instance)
        removals, additions = _compute_changes(state, instance, target_slices.get(placement))
        compute_steps += removals
        make_steps += additions
        if placement not in target_slices:
            destroy_steps.append(Destroy(instance.gi_id))
    for placement, part in sorted(target_slices.items()):
        if placement not in current:
            make_steps.append(Create(part.profile_id, part.start, part.parts is None))
            make_steps += [CreateCompute(part.start, inner, None) for inner in part.parts or ()]
    mode_steps = _mode(state, target.enabled)
    return Change((*compute_steps, *destroy_steps, *mode_steps, *make_steps), tuple(kept), tuple(touched))


def _mode(state: GpuState, enabled: bool) -> list[Step]:
    if state.mode.current == enabled:
        return [SetMode(enabled)] if state.mode.pending != enabled else []
    return [SetMode(enabled)] if state.mode.pending != enabled else [Reset()]


def _compute_changes(
    state: GpuState, instance: Instance, target_slices: Slice | None
) -> tuple[list[Step], list[Step]]:
    """Steps that remove and steps that create compute instances of a slice."""
    parts: tuple[ComputePart, ...] = ()
    if target_slices is not None:
        usual = usual_part(state.model, state.model.by_id(instance.profile_id))
        parts = (usual,) if target_slices.parts is None else target_slices.parts
    current = [each.part for each in instance.compute]
    removals: list[Step] = [
        DestroyCompute(instance.gi_id, each.ci_id) for each in instance.compute if each.part not in parts
    ]
    additions: list[Step] = [
        CreateCompute(instance.start, part, instance.gi_id) for part in parts if part not in current
    ]
    return removals, additions


def apply_change(driver: MigDriver, gpu: int, change: Change) -> None:
    """Perform the steps in order; stops at the first refusal."""
    created: dict[int, int] = {}
    for step in change.steps:
        match step:
            case SetMode(enabled):
                _set_mode(driver, gpu, enabled)
            case Reset():
                _reset(driver, gpu)
            case DestroyCompute(gi_id, ci_id):
                driver.destroy_compute(gpu, gi_id, ci_id)
            case Destroy(gi_id):
                driver.destroy(gpu, gi_id)
            case Create(profile_id, start, with_compute):
                created[start] = driver.create(gpu, profile_id, start, with_compute=with_compute)
            case CreateCompute(start, part, gi_id):
                driver.create_compute(gpu, created[start] if gi_id is None else gi_id, part)


class PendingUntilRebootError(Exception):
    """The mode is pending and needs a reboot. Not a failure: the caller reports it."""


def _set_mode(driver: MigDriver, gpu: int, enabled: bool) -> None:
    driver.set_mode(gpu, enabled)
    # "All done." is printed whether or not the mode took effect: only a read shows it.
    mode = next(state.mode for state in driver.read() if state.index == gpu)
    if mode.current != enabled:
        _reset(driver, gpu)


def _reset(driver: MigDriver, gpu: int) -> None:
    try:
        driver.reset(gpu)
    except DriverError as error:
        if error.refusal is Refusal.NOT_SUPPORTED:
            raise PendingUntilRebootError from error
        raise
