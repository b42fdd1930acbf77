"""Applies layouts as a transaction: check, save, change, read back, and restore on failure.

Works on any `MigDriver`.
"""

import fcntl
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calotype.core.errors import CalotypeError, ExitCode
from calotype.mig.diff import Change, PendingUntilRebootError, Reset, SetMode, apply_change, back_to, diff
from calotype.mig.driver import DriverError, GpuState, MigDriver, Refusal, gpu_at
from calotype.mig.layout import Layout, check
from calotype.mig.layout_file import write_layouts

_log = logging.getLogger(__name__)

_RESTORE_ATTEMPTS = 3


class ApplyError(CalotypeError):
    """A change failed; the message says whether the former layout is restored."""

    exit_code = ExitCode.GPU_REFUSED

    def __init__(self, message: str, *, restored: bool) -> None:
        self.restored = restored
        super().__init__(message)


@dataclass(frozen=True)
class Applied:
    """The result of a change."""

    change: Change
    before: GpuState
    after: GpuState
    saved: Path | None
    """The file with the former layout; None if nothing had to change."""
    waits_for_reboot: bool = False


def prepare(state: GpuState, target: Layout) -> Change:
    """Compute the change; refused if the layout breaks a rule or a slice to be removed is in use."""
    check(state.model, target)
    change = diff(state, target)
    busy = [
        f"{state.model.by_id(each.profile_id).name} at {each.start} (GPU instance {each.gi_id}) is in use by "
        f"process {', '.join(map(str, each.processes))}"
        for each in change.touched
        if each.processes
    ]
    if state.processes and any(isinstance(step, SetMode | Reset) for step in change.steps):
        busy.append(f"the whole GPU is in use by process {', '.join(map(str, state.processes))}")
    if busy:
        raise DriverError(Refusal.IN_USE, f"GPU {state.index} is unchanged", "; ".join(busy))
    return change


def apply_all(
    driver: MigDriver, targets: Mapping[int, Layout], save_to: Callable[[int], Path]
) -> list[Applied]:
    """Apply every GPU's target, one after the other; on failure restore all of them."""
    applied: list[Applied] = []
    try:
        for gpu, target in targets.items():
            applied.append(apply(driver, gpu, target, save_to(gpu)))
    except BaseException as error:
        changed = [each for each in reversed(applied) if each.change.steps]
        back = {each.before.index: restore(driver, each.before) for each in changed}
        for each in changed:
            if not back[each.before.index]:
                _report(each.before, error, restored=False, saved=save_to(each.before.index))
        if back and isinstance(error, CalotypeError):
            others = ", ".join(f"GPU {index}" for index in sorted(back))
            restored = getattr(error, "restored", True)
            raise ApplyError(
                f"{error}; the former layout of {others} is restored too", restored=restored
            ) from error
        raise
    return applied


def apply(driver: MigDriver, gpu: int, target: Layout, save_to: Path) -> Applied:
    """Apply `target` to the GPU, or restore it and raise `ApplyError`."""
    before = gpu_at(driver, gpu)
    change = prepare(before, target)
    if not change.steps:
        return Applied(change, before, before, None)
    write_layouts(save_to, [before])
    try:
        waits = _perform(driver, gpu, change)
        after = gpu_at(driver, gpu)
        mismatch = (
            None if waits and after.mode.pending == target.enabled else _mismatch(after, target, change)
        )
        if mismatch:
            raise ApplyError(f"reading it back shows {mismatch}", restored=False)
    except BaseException as error:
        _report(before, error, restore(driver, before), save_to)
        raise
    return Applied(change, before, after, save_to, waits)


def _perform(driver: MigDriver, gpu: int, change: Change) -> bool:
    """Perform the change; True if it waits for a reboot."""
    try:
        apply_change(driver, gpu, change)
    except PendingUntilRebootError:
        return True
    return False


def restore(driver: MigDriver, former: GpuState) -> bool:
    """Restore a GPU to exactly its former state; True if reading it back confirms that."""
    for _ in range(_RESTORE_ATTEMPTS):
        try:
            with _ignore_signals():
                current = gpu_at(driver, former.index)
                if _identity(current) == _identity(former):
                    return True
                apply_change(driver, former.index, back_to(former, current))
                if _identity(gpu_at(driver, former.index)) == _identity(former):
                    return True
        # Any error: a partial change is worse than a retry, and the caller reports the outcome.
        except (Exception, KeyboardInterrupt) as error:
            _log.warning("GPU %d could not be restored: %s", former.index, str(error) or type(error).__name__)
    return False


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Ignore further signals: a second Ctrl-C must not leave a partially changed GPU."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Lock, since concurrent changes would undo each other: the second one waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "mig.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _report(before: GpuState, error: BaseException, restored: bool, saved: Path) -> None:
    """Raise an error for the user; if all is restored, other exceptions (Ctrl-C, a bug) pass unchanged."""
    if restored and not isinstance(error, CalotypeError):
        return
    cause = str(error) or type(error).__name__
    if restored:
        what = "the former layout is restored and verified"
    else:
        what = f"the former layout is NOT restored; it is saved: calotype mig restore {saved} --yes"
    raise ApplyError(f"GPU {before.index}: {cause} — {what}", restored=restored) from error


def _mismatch(after: GpuState, target: Layout, change: Change) -> str | None:
    """How the state differs from the target, in words."""
    if after.layout != target:
        return f"{_words(after, after.layout)} instead of {_words(after, target)}"
    gone = [kept.gi_id for kept in change.kept if kept.gi_id not in [each.gi_id for each in after.instances]]
    return f"a different GPU instance {gone[0]}, which should have stayed" if gone else None


def _words(state: GpuState, layout: Layout) -> str:
    if not layout.enabled:
        return "MIG mode off"
    parts = [f"{state.model.by_id(part.profile_id).name} at {part.start}" for part in layout.slices]
    return ", ".join(parts) or "no slices"


def _identity(state: GpuState) -> object:
    """Everything that identifies a layout: placements, profiles, compute instances, and their UUIDs."""
    instances = [
        (each.start, each.profile_id, each.gi_id, sorted((c.part, c.uuid or "") for c in each.compute))
        for each in state.instances
    ]
    return state.mode, sorted(instances)
