"""Terminal tables and JSON of GPUs, slices, plans and changes."""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from calotype.mig.ascii_diagram import draw, letters
from calotype.mig.diff import Create, Destroy
from calotype.mig.profiles import GIB

_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red", "white")

if TYPE_CHECKING:
    from calotype.mig.apply import Applied
    from calotype.mig.diff import Change
    from calotype.mig.driver import GpuState, Process
    from calotype.mig.layout import Layout
    from calotype.mig.performance_model import Prediction
    from calotype.mig.planner import Assigned, Plan, PlanRequest
    from calotype.mig.profiles import GpuModel, Profile


def show_state(console: Console, state: "GpuState") -> None:
    """One GPU: its mode, the drawing, and a row for each slice."""
    console.print(f"GPU {state.index}: {state.name} ({state.model.name}), driver {state.driver_version}")
    console.print(mode_words(state))
    if state.processes:
        console.print(f"processes outside slices: {_process_list(state.processes)}")
    if not state.mode.current:
        return
    console.print(_drawing(state.model, state.layout), soft_wrap=True)
    if not state.instances:
        console.print(
            "no slices; find a layout with `calotype mig plan`, create it with `calotype mig apply`"
        )
        return
    table = Table("", "slice", "place", "memory", "ids", "processes", box=None)
    names = letters(state.layout)
    for instance in state.instances:
        profile = state.model.by_id(instance.profile_id)
        parts = ", ".join(str(part.ci_id) for part in instance.compute) or "no compute instance"
        table.add_row(
            names[instance.start],
            profile.name,
            f"{instance.start}:{profile.memory_slices}",
            f"{profile.memory_bytes / GIB:.2f} GiB",
            f"{instance.gi_id}/{parts}",
            _process_list(instance.processes),
        )
    console.print(table)
    # Not in the table, which would cut them in a narrow terminal.
    for instance in state.instances:
        for part in instance.compute:
            console.print(
                f" {names[instance.start]}  CUDA_VISIBLE_DEVICES={part.uuid or '?'}", soft_wrap=True
            )


def _drawing(gpu: "GpuModel", layout: "Layout") -> Text:
    """The diagram with one color per slice; letters identify slices where there are no colors."""
    text = Text("\n".join(draw(gpu, layout)))
    for number, letter in enumerate(letters(layout).values()):
        # Cells of one slice have no bar between them.
        text.highlight_regex(rf"(?<=│){letter} (?: {letter} )*", f"black on {_COLORS[number % len(_COLORS)]}")
    return text


def mode_words(state: "GpuState") -> str:
    words = {True: "on", False: "off"}
    mode = f"MIG mode {words[state.mode.current]}"
    if state.mode.current == state.mode.pending:
        return mode
    return f"{mode}, pending {words[state.mode.pending]}: reset the GPU, or reboot where it cannot be reset"


def _process_list(processes: "Sequence[Process]") -> str:
    return ", ".join(map(str, processes)) or "idle"


def state_json(state: "GpuState") -> dict[str, Any]:
    """The JSON form; its keys are part of the interface of the command."""
    return {
        "index": state.index,
        "name": state.name,
        "uuid": state.uuid,
        "model": state.model.name,
        "driver_version": state.driver_version,
        "mode": state.mode,
        "processes": state.processes,
        "slices": [
            {
                "profile": state.model.by_id(each.profile_id).name,
                "profile_id": each.profile_id,
                "start": each.start,
                "memory_slices": state.model.by_id(each.profile_id).memory_slices,
                "memory_bytes": state.model.by_id(each.profile_id).memory_bytes,
                "gpu_instance": each.gi_id,
                "compute_instances": [{"id": part.ci_id, "uuid": part.uuid} for part in each.compute],
                "processes": each.processes,
            }
            for each in state.instances
        ],
    }


def show_plans(console: Console, question: "PlanRequest", found: "Sequence[Plan]") -> None:
    """Print the best plan in full and the others as diagrams."""
    best = found[0]
    _show_plan(console, question.gpu, best)
    for line in figures_used(question, best):
        console.print(f"  {line}", soft_wrap=True)
    if len(found) > 1:
        console.print("\nalternatives:")
        console.print(Columns([_brief(question.gpu, plan) for plan in found[1:]], padding=(0, 4)))


def _show_plan(console: Console, gpu: "GpuModel", plan: "Plan") -> None:
    console.print(_drawing(gpu, plan.layout), soft_wrap=True)
    table = Table("", "slice", "place", "memory", "for", "needs", "predicted speed", box=None)
    names = letters(plan.layout)
    for part in plan.assigned:
        need = f"{part.want.memory_bytes / GIB:.1f} GiB" if part.want and part.want.memory_bytes else ""
        table.add_row(
            names[part.slice.start],
            part.profile.name,
            f"{part.slice.start}:{part.profile.memory_slices}",
            f"{part.profile.memory_bytes / GIB:.2f} GiB",
            part.want.label if part.want else "spare",
            need,
            speed_words(part.prediction),
        )
    console.print(table)


def _brief(gpu: "GpuModel", plan: "Plan") -> Text:
    """A plan no wider than its diagram, so that two fit side by side in a narrow terminal."""
    names, drawing = letters(plan.layout), _drawing(gpu, plan.layout)
    slices = [f"{names[part.slice.start]}\u00a0{part.profile.name}" for part in plan.assigned]
    width = max(len(line) for line in drawing.plain.splitlines())
    lines = [*wrap(", ".join(slices), width), f"{plan.total_share:.0%} of the GPU's speed (predicted)"]
    return drawing.append("".join(f"\n{line}" for line in lines).replace("\u00a0", " "))


def speed_words(prediction: "Prediction") -> str:
    share = f"{prediction.share:.0%} of the GPU"
    if prediction.per_s is None:
        return share
    return f"{prediction.per_s:.1f}/s ({prediction.low_per_s:.1f}–{prediction.high_per_s:.1f}), {share}"


def figures_used(question: "PlanRequest", plan: "Plan") -> Iterable[str]:
    """The sources of all numbers, without duplicates."""
    lines: dict[str, None] = {}
    for part in plan.assigned:
        if part.want and part.want.memory_bytes:
            lines[f"memory of {part.want.label}: {part.want.source}"] = None
        if part.profile.memory_gib is None:
            lines[f"memory of {part.profile.name}: estimated from its name, as it is not published"] = None
        lines[f"speed: {part.prediction.basis}"] = None
        if "starts" in part.profile.uncertain:
            lines[
                f"places of {question.gpu.name}: by analogy with related cards; a live driver reports them"
            ] = None
    return lines


def plan_json(plan: "Plan", gpu: "GpuModel") -> dict[str, Any]:
    return {
        "gpu": gpu.name,
        "slices": [_assigned_json(part) for part in plan.assigned],
        "predicted_share": plan.total_share,
        "wasted_share": plan.wasted_share,
        "kept": plan.kept,
    }


def _assigned_json(part: "Assigned") -> dict[str, Any]:
    return {
        "profile": part.profile.name,
        "profile_id": part.profile.profile_id,
        "start": part.slice.start,
        "for": part.want.label if part.want else None,
        "needed_bytes": part.want.memory_bytes if part.want else None,
        "memory_source": part.want.source if part.want else None,
        "prediction": part.prediction,
    }


def show_change(console: Console, state: "GpuState", target: "Layout", change: "Change") -> None:
    """Print a change as the commands that would be run."""
    console.print(f"GPU {state.index}: {state.name} ({state.model.name})")
    if target.enabled:
        console.print(_drawing(state.model, target), soft_wrap=True)
    if not change.steps:
        console.print("the layout is already in place; nothing to do")
        return
    console.print(_change_words(change))
    for command in change.commands(state.index):
        console.print(f"  {command}", soft_wrap=True)


def _change_words(change: "Change") -> str:
    """Counts of slices that are kept, changed, removed and created."""
    removed, created = (sum(isinstance(step, kind) for step in change.steps) for kind in (Destroy, Create))
    counts = {
        "kept untouched": len(change.kept),
        "changed inside": len(change.touched) - removed,
        "removed": removed,
        "created": created,
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"slices: {', '.join(parts)}" if parts else "no slice changes"


def applied_json(applied: "Applied") -> dict[str, Any]:
    return {
        "gpu": applied.after.index,
        "changed": bool(applied.change.steps),
        "commands": applied.change.commands(applied.after.index),
        "saved": applied.saved,
        "waits_for_reboot": applied.waits_for_reboot,
        "state": state_json(applied.after),
    }


def show_predictions(console: Console, rows: "Iterable[tuple[Profile, Prediction, bool]]") -> None:
    """Print a row per profile, the whole GPU last; `fits` tells whether the workload fits in memory."""
    table = Table("slice", "SMs", "memory", "predicted speed", "fits", box=None)
    basis = ""
    for profile, prediction, fits in rows:
        memory = f"{profile.memory_bytes / GIB:.2f} GiB"
        sms = str(profile.sms or "?")
        table.add_row(profile.name, sms, memory, speed_words(prediction), "yes" if fits else "no")
        basis = prediction.basis
        if prediction.per_s is None:
            basis = "predicted from each slice's share of SMs" + "".join(basis.partition(";")[1:])
    console.print(table)
    console.print(f"A prediction, not a measurement: {basis}", soft_wrap=True)
