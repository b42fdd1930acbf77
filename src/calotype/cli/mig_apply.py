"""Layouts from text and files, and their application to GPUs; shared by the `calotype mig` commands."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calotype.cli.mig_options import save_path

if TYPE_CHECKING:
    from calotype.mig.apply import Applied
    from calotype.mig.driver import GpuState, MigDriver
    from calotype.mig.layout import Layout


def read_text(path: Path) -> str:
    from calotype.core.errors import NotFoundError

    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(f"{path} cannot be read: {error}") from None


def file_targets(driver: "MigDriver", path: Path, label: str | None) -> "dict[int, Layout]":
    """The layout per GPU that a file describes; the content shows which of the two formats it has."""
    from calotype.core.errors import Problem, RequestError
    from calotype.mig import layout_file, mig_parted

    text, states = read_text(path), driver.read()
    if text.lstrip().startswith("{"):
        return layout_file.targets(layout_file.parse_layouts(text, str(path)), states)
    file = mig_parted.parse_parted(text, str(path))
    if label is None and len(file.mig_configs) > 1:
        names = ", ".join(file.mig_configs)
        raise RequestError([Problem("--label", f"{path} has several configurations: {names}; name one")])
    return mig_parted.targets(file, label or next(iter(file.mig_configs), ""), states)


def change_to(driver: "MigDriver", targets: "dict[int, Layout]", *, yes: bool, as_json: bool) -> None:
    """Show the change of each GPU, and apply it if `yes`."""
    from calotype.cli.mig_tables import applied_json, show_change
    from calotype.cli.output import console, print_json
    from calotype.core.paths import state_dir
    from calotype.mig.apply import apply_all, one_at_a_time, prepare

    # Every GPU is checked before the first is changed.
    states = {state.index: state for state in driver.read()}
    prepared = [(states[index], target, prepare(states[index], target)) for index, target in targets.items()]
    if not as_json:
        for state, target, change in prepared:
            show_change(console(), state, target, change)
    if not yes:
        if as_json:
            print_json([{"gpu": s.index, "commands": c.commands(s.index)} for s, _, c in prepared])
        elif any(change.steps for _, _, change in prepared):
            typer.echo("nothing was changed; add --yes to apply")
        return
    with one_at_a_time(state_dir()), _stoppable():
        _check_unchanged(driver, [state for state, _, _ in prepared])
        done = apply_all(driver, targets, save_path)
    if as_json:
        print_json([applied_json(each) for each in done])
    _after(done, quiet=as_json)


def _check_unchanged(driver: "MigDriver", shown: "list[GpuState]") -> None:
    """Raise if a GPU changed after its change was planned, for example while waiting for the lock."""
    from calotype.mig.apply import ApplyError
    from calotype.mig.driver import gpu_at

    for state in shown:
        if gpu_at(driver, state.index).layout != state.layout:
            raise ApplyError(
                f"GPU {state.index} was changed by another process meanwhile; nothing was done, try again",
                restored=True,
            )


@contextmanager
def _stoppable() -> Iterator[None]:
    """Treat SIGTERM, which stops a service, like Ctrl-C, so that an unfinished change is rolled back."""

    def on_signal(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _after(done: "list[Applied]", *, quiet: bool) -> None:
    """Report the result; a GPU that waits for a reboot makes the command exit with GPU_REFUSED."""
    from calotype.core.errors import ExitCode
    from calotype.mig.compose import cdi_line

    waiting = [each for each in done if each.waits_for_reboot]
    for each in [] if quiet else done:
        if each.waits_for_reboot:
            typer.echo(
                f"GPU {each.after.index}: the MIG mode is pending and this card cannot be reset here; reboot "
                "once, then run the same command again (`calotype mig persist` layouts apply by themselves)",
                err=True,
            )
        elif each.change.steps:
            typer.echo(f"GPU {each.after.index}: changed and verified; the former layout is in {each.saved}")
    if not quiet and any(each.change.steps for each in done if not each.waits_for_reboot):
        typer.echo(f"to update the device names of containers: {cdi_line()}")
    if waiting:
        raise typer.Exit(int(ExitCode.GPU_REFUSED))


def wanted_layout(driver: "MigDriver", gpu: int, wants: str, *, beside: bool = False) -> "Layout":
    """The layout for a text: profiles reuse existing slices, workloads are planned."""
    from calotype.mig.driver import gpu_at
    from calotype.mig.layout import EMPTY, OFF, Layout
    from calotype.mig.performance_model import shipped
    from calotype.mig.planner import PlanRequest, places_for, plans
    from calotype.mig.request_syntax import parse_requests, requested_profiles

    words = {"off": OFF, "empty": EMPTY}
    if wants.strip().lower() in words:
        return words[wants.strip().lower()]
    state = gpu_at(driver, gpu)
    shapes = requested_profiles(wants, state.model, shipped())
    if shapes is not None and not beside:
        return _with_parts(places_for(state.model, shapes, state.layout, state.busy_layout), state)
    locked = state.layout.slices if beside else ()
    requests = parse_requests(wants, state.model, shipped())
    best = plans(PlanRequest(state.model, requests, shipped(), existing=state.layout, locked=locked), 1)[0]
    return _with_parts(Layout(True, best.layout.slices), state)


def _with_parts(layout: "Layout", state: "GpuState") -> "Layout":
    """Existing slices keep their compute instances."""
    from calotype.mig.layout import Layout

    existing = {(part.start, part.profile_id): part for part in state.layout.slices}
    return Layout.of(existing.get((part.start, part.profile_id), part) for part in layout.slices)
