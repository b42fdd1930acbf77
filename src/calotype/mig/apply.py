"""Changes layouts so that all end as asked or as they were: check, save, change, read back, restore.

Works on any `MigDriver`. Knows nothing of the command line.
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
    """A change that failed; says what came of the former layout."""

    exit_code = ExitCode.GPU_REFUSED

    def __init__(self, message: str, *, restored: bool) -> None:
        self.restored = restored
        super().__init__(message)


@dataclass(frozen=True)
class Applied:
    """What came of it."""

    change: Change
    before: GpuState
    after: GpuState
    saved: Path | None
    """Where the former layout is; None when nothing had to change."""
    waits_for_reboot: bool = False


def prepare(state: GpuState, target: Layout) -> Change:
    """The change, refused when the layout breaks a rule or somebody uses what must go."""
    check(state.model, target)
    change = diff(state, target)
    busy = [
        f"{state.model.by_id(each.profile_id).name} at {each.start} (GPU instance {each.gi_id}) is held by "
        f"process {', '.join(map(str, each.processes))}"
        for each in change.touched
        if each.processes
    ]
    if state.processes and any(isinstance(step, SetMode | Reset) for step in change.steps):
        busy.append(f"the whole card is held by process {', '.join(map(str, state.processes))}")
    if busy:
        raise DriverError(Refusal.IN_USE, f"GPU {state.index} is left as it is", "; ".join(busy))
    return change


def apply_all(
    driver: MigDriver, targets: Mapping[int, Layout], save_to: Callable[[int], Path]
) -> list[Applied]:
    """Bring every GPU to its target, one after the other, or all of them back to what they were."""
    done: list[Applied] = []
    try:
        for gpu, target in targets.items():
            done.append(apply(driver, gpu, target, save_to(gpu)))
    except BaseException as error:
        changed = [each for each in reversed(done) if each.change.steps]
        back = {each.before.index: restore(driver, each.before) for each in changed}
        for each in changed:
            if not back[each.before.index]:
                _report(each.before, error, restored=False, saved=save_to(each.before.index))
        if back and isinstance(error, CalotypeError):
            others = ", ".join(f"GPU {index}" for index in sorted(back))
            restored = getattr(error, "restored", True)
            raise ApplyError(
                f"{error}; the former layout of {others} is back too", restored=restored
            ) from error
        raise
    return done


def apply(driver: MigDriver, gpu: int, target: Layout, save_to: Path) -> Applied:
    """Bring the GPU to `target`, or back to what it was with an `ApplyError`."""
    before = gpu_at(driver, gpu)
    change = prepare(before, target)
    if not change.steps:
        return Applied(change, before, before, None)
    write_layouts(save_to, [before])
    try:
        waits = _perform(driver, gpu, change)
        after = gpu_at(driver, gpu)
        wrong = None if waits and after.mode.pending == target.enabled else _wrong(after, target, change)
        if wrong:
            raise ApplyError(f"read back and found {wrong}", restored=False)
    except BaseException as error:
        _report(before, error, restore(driver, before), save_to)
        raise
    return Applied(change, before, after, save_to, waits)


def _perform(driver: MigDriver, gpu: int, change: Change) -> bool:
    """Make the change; whether it waits for a reboot."""
    try:
        apply_change(driver, gpu, change)
    except PendingUntilRebootError:
        return True
    return False


def restore(driver: MigDriver, former: GpuState) -> bool:
    """Bring a GPU back to exactly what it was; whether reading it back proves that."""
    for _ in range(_RESTORE_ATTEMPTS):
        try:
            with _undisturbed():
                now = gpu_at(driver, former.index)
                if _identity(now) == _identity(former):
                    return True
                apply_change(driver, former.index, back_to(former, now))
                if _identity(gpu_at(driver, former.index)) == _identity(former):
                    return True
        # Whatever it is: what was done so far is worse than trying again, and the caller says how it ended.
        except (Exception, KeyboardInterrupt) as error:
            _log.warning("GPU %d could not be put back: %s", former.index, str(error) or type(error).__name__)
    return False


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Who presses Ctrl-C again wants an end, not a card that is half one thing and half another."""
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
    """Two changes at once would undo each other: the second waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "mig.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _report(before: GpuState, error: BaseException, restored: bool, saved: Path) -> None:
    """Raise what a user should read; what is no refusal (Ctrl-C, a bug) goes on as it came."""
    if restored and not isinstance(error, CalotypeError):
        return
    cause = str(error) or type(error).__name__
    if restored:
        what = "the former layout is back, read back and compared"
    else:
        what = f"the former layout is NOT back; it is saved: calotype mig restore {saved} --yes"
    raise ApplyError(f"GPU {before.index}: {cause} — {what}", restored=restored) from error


def _wrong(after: GpuState, target: Layout, change: Change) -> str | None:
    """What is not as it should be, in words."""
    if after.layout != target:
        return f"{_words(after, after.layout)} instead of {_words(after, target)}"
    gone = [kept.gi_id for kept in change.kept if kept.gi_id not in [each.gi_id for each in after.instances]]
    return f"that GPU instance {gone[0]}, which should stay, is another now" if gone else None


def _words(state: GpuState, layout: Layout) -> str:
    if not layout.enabled:
        return "MIG mode off"
    parts = [f"{state.model.by_id(part.profile_id).name} at {part.start}" for part in layout.slices]
    return ", ".join(parts) or "no slices"


def _identity(state: GpuState) -> object:
    """All that makes a layout this one: places, shapes, insides, and the UUIDs programs know it by."""
    instances = [
        (each.start, each.profile_id, each.gi_id, sorted((c.part, c.uuid or "") for c in each.compute))
        for each in state.instances
    ]
    return state.mode, sorted(instances)
