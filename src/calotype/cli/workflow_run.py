"""Implementation of `calotype run`: opens, edits, validates and executes a workflow."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from calotype.cli.generate_run import check_out
from calotype.cli.output import print_json
from calotype.cli.progress import Bar, cancellable, progress_for
from calotype.core.errors import (
    CalotypeError,
    CancelledError,
    ExitCode,
    NotFoundError,
    Problem,
    RequestError,
    did_you_mean,
)
from calotype.core.progress import CancelToken
from calotype.spec.constants import PRESETS
from calotype.workflow.input_coercion import nearest

if TYPE_CHECKING:
    from calotype.workflow.executor import Event, Executor, Failed
    from calotype.workflow.file_catalogue import FolderCatalogue
    from calotype.workflow.load import Opened
    from calotype.workflow.registry import Registry
    from calotype.workflow.validation import Validation

MAX_FILE_BYTES = 2**30
EMBEDDED = "emoji"
SUFFIXES = (".json", ".png", ".webp", ".jpg", ".jpeg")


@dataclass(frozen=True)
class WorkflowOptions:
    """One command line of `calotype run`."""

    workflow: Path
    changes: tuple[str, ...]
    only: tuple[str, ...] | None
    out: Path
    inputs: Path
    preset: str | None
    precision: str | None
    device: str | None
    models: Path | None
    validate_only: bool
    print_api: bool
    as_json: bool


class NodeFailedError(CalotypeError):
    """A node failed; has the exit code of the error it raised."""

    def __init__(self, failed: Failed) -> None:
        own = isinstance(failed.error, CalotypeError)
        self.exit_code = failed.error.exit_code if isinstance(failed.error, CalotypeError) else ExitCode.BUG
        message = failed.message if own else f"{failed.exception_type}: {failed.message}"
        super().__init__(f"node {failed.node} ({failed.class_type}): {message}")


def run(options: WorkflowOptions) -> None:
    """Validate everything before a model loads, then run."""
    from calotype.cli.node_overrides import changed
    from calotype.workflow.file_catalogue import FolderCatalogue
    from calotype.workflow.load import open_workflow
    from calotype.workflow.registry import load_registry
    from calotype.workflow.validation import validate

    registry = load_registry()
    for left_out in registry.left_out:
        print(f"note: nodes of {left_out.package} are not available: {left_out.reason}", file=sys.stderr)
    if options.preset and options.preset not in PRESETS and not options.preset.startswith("passes:"):
        rule = f"no preset {options.preset!r}; {did_you_mean(options.preset, PRESETS)}"
        raise RequestError([Problem("--preset", rule)])
    opened = open_workflow(_read(options.workflow), str(options.workflow), registry)
    opened = changed(opened, options.changes, registry)
    if options.print_api:
        if opened.unnamed:
            raise RequestError(opened.unnamed)
        print_json(opened.prompt)
        return
    catalogue = FolderCatalogue(options.models, options.inputs, known=_known(opened), presets=PRESETS)
    checked = validate(opened.prompt, registry, catalogue, options.only)
    if options.validate_only:
        _report(checked, as_json=options.as_json)
        return
    if not checked.sound:
        raise RequestError([Problem("", line) for line in checked.lines()])
    check_out(options.out)
    _run(options, opened, checked, registry, catalogue)


def _read(path: Path) -> bytes:
    if not path.is_file():
        beside = path.parent.glob("*") if path.parent.is_dir() else ()
        known = nearest(path.name, (each.name for each in beside if each.suffix in SUFFIXES))
        raise NotFoundError(f"no workflow {path}; {known}")
    if path.stat().st_size > MAX_FILE_BYTES:
        rule = f"{path} is {path.stat().st_size} bytes, the limit is {MAX_FILE_BYTES}"
        raise RequestError([Problem("workflow", rule)])
    return path.read_bytes()


def _known(opened: Opened) -> tuple[str, ...]:
    """The embedded model, and the random models that the graph names, as these cannot be listed."""
    nodes = [node.get("inputs") for node in opened.prompt.values() if isinstance(node, dict)]
    values = [value for inputs in nodes if isinstance(inputs, dict) for value in inputs.values()]
    random = {value for value in values if isinstance(value, str) and value.startswith("random:")}
    return (EMBEDDED, *sorted(random))


def _report(checked: Validation, *, as_json: bool) -> None:
    if as_json:
        print_json({**checked.as_dict(), "outputs": checked.outputs})
    elif checked.sound:
        typer.echo(f"valid: {len(checked.graph)} nodes for {', '.join(checked.outputs)}")
    if not checked.sound:
        raise RequestError([Problem("", line) for line in checked.lines()])


def _run(
    options: WorkflowOptions,
    opened: Opened,
    checked: Validation,
    registry: Registry,
    catalogue: FolderCatalogue,
) -> None:
    from calotype.cli.workflow_context import FolderHost
    from calotype.workflow.cache import Cache
    from calotype.workflow.executor import Executor

    with progress_for() as bar:
        bar.start("loading libraries", 1)
        host = FolderHost(options, opened, catalogue, _print_path(options))
        # A single run needs no cached results.
        execution = Executor(checked.graph, registry, Cache(most_entries=0), host, outputs=checked.outputs)
        with cancellable() as cancel:
            nodes = _execute(execution, opened, bar, cancel, options)
    if options.as_json:
        print_json({"files": host.written, "nodes": nodes})


def _print_path(options: WorkflowOptions) -> Any:
    return (lambda _: None) if options.as_json else typer.echo


def _execute(
    execution: Executor, opened: Opened, bar: Bar, cancel: CancelToken, options: WorkflowOptions
) -> list[dict[str, Any]]:
    """Run all nodes and return their seconds, in order."""
    from calotype.workflow.executor import Failed

    nodes: list[dict[str, Any]] = []
    drawing = _Drawing(opened.prompt, bar, nodes)
    try:
        for event in execution:
            if isinstance(event, Failed):
                if not isinstance(event.error, CalotypeError):
                    print("".join(event.traceback), file=sys.stderr)
                raise NodeFailedError(event)
            drawing.show(event)
            if cancel.cancelled:
                done = f"; finished images are in {options.out}" if options.out.exists() else ""
                raise CancelledError(f"cancelled{done}")
    finally:
        execution.close()
    return nodes


class _Drawing:
    """Draws a progress bar for the running node."""

    def __init__(self, prompt: dict[str, Any], bar: Bar, nodes: list[dict[str, Any]]) -> None:
        self._prompt, self._bar, self._nodes = prompt, bar, nodes
        self._started_s, self._done, self._total = 0.0, 0, 0

    def show(self, event: Event) -> None:
        from calotype.workflow.executor import Executed, Executing, Progressed

        if isinstance(event, Executing):
            self._started_s, self._done, self._total = time.perf_counter(), 0, 1
            self._bar.start(self._label(event.node), 1)
        elif isinstance(event, Progressed):
            if self._total != event.maximum:
                self._bar.start(self._label(event.node), event.maximum)
                self._done, self._total = 0, event.maximum
            self._bar.advance(event.value - self._done)
            self._done = event.value
        elif isinstance(event, Executed):
            seconds = round(time.perf_counter() - self._started_s, 4)
            self._nodes.append({"node": event.node, "seconds": seconds})

    def _label(self, name: str) -> str:
        return f"{name} {self._prompt[name]['class_type']}"
