"""Prints facts and findings within 80 columns, with or without color; words carry the levels too."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calotype.cli.doctor.types import Facts, Finding, Level, gibibytes, gigabytes
from calotype.core.hardware import Gpu, MigDevice

_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_NONE = "not installed"


def show(console: Console, facts: Facts, findings: Sequence[Finding]) -> None:
    """Print the report; findings come last, as the end of a report stays on the screen."""
    sections = (
        ("Versions", _versions(facts)),
        ("Machine", _machine(facts)),
        ("GPUs", _gpus(facts)),
        ("Attention kernels", _attention(facts)),
        ("Compilers", _compilers(facts)),
        ("Disk", _disks(facts)),
        ("Findings", _findings(findings)),
    )
    for title, body in sections:
        console.print(Text(title, style="bold"))
        console.print(Padding.indent(body, 2))
        console.print()
    console.print(_verdict(facts, findings))


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(value))
    return grid


def version_rows(facts: Facts) -> list[tuple[str, str | None]]:
    """All versions, the most often needed first."""
    seen, packages = facts.fingerprint, facts.fingerprint.packages
    torch = facts.torch
    return [
        ("calotype", seen.calotype),
        ("python", seen.python),
        ("torch", torch.version if torch else packages.get("torch")),
        ("cuda", torch.cuda if torch else None),
        ("cudnn", torch.cudnn if torch else None),
        ("driver", seen.driver),
        ("driver_cuda", seen.driver_cuda),
        *((name, packages.get(name)) for name in sorted(packages) if name != "torch"),
    ]


def _versions(facts: Facts) -> RenderableType:
    rows = version_rows(facts)
    half = (len(rows) + 1) // 2
    grid = Table.grid(padding=(0, 2))
    for _ in range(2):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold", min_width=20)
    for left, right in zip_longest(rows[:half], rows[half:], fillvalue=("", " ")):
        grid.add_row(left[0].replace("_", " "), left[1] or "none", right[0], right[1] or "none")
    return grid


def _machine(facts: Facts) -> RenderableType:
    seen, memory = facts.fingerprint, facts.memory
    limit = f", container limit {gibibytes(memory.limit_bytes)}" if memory.limit_bytes else ""
    rows = [
        ("system", f"{seen.operating_system}, {seen.kernel}"),
        ("processor", f"{seen.cpu.model} ({seen.cpu.architecture})"),
        ("cores", f"{seen.cpu.num_cores}, {seen.cpu.num_usable_cores} of them usable"),
        ("memory", f"{gibibytes(memory.total_bytes)}, {gibibytes(memory.available_bytes)} available{limit}"),
    ]
    if seen.commit:
        rows.append(("commit", f"{seen.commit[:12]}{' with changes' if seen.modified else ''}"))
    return _pairs(rows)


def _gpus(facts: Facts) -> RenderableType:
    survey = facts.gpus
    if survey.gpus:
        return Group(*(_gpu(gpu) for gpu in survey.gpus))
    if facts.cuda_devices:
        return _pairs(
            (device.device, f"{device.name}, {gibibytes(device.memory_total_bytes)}, {device.num_sms} SMs")
            for device in facts.cuda_devices
        )
    return Text("none" if survey.trouble is None else f"none ({survey.trouble.message})")


def _gpu(gpu: Gpu) -> RenderableType:
    if gpu.name is None:
        return _pairs([(f"GPU {gpu.index}", f"does not answer ({'; '.join(gpu.refusals)})")])
    mig = "not available"
    if gpu.mig is not None:
        mig = "on" if gpu.mig.current else "off"
        if gpu.mig.pending != gpu.mig.current:
            mig += f", {'on' if gpu.mig.pending else 'off'} after a reset"
    rows = [
        (f"GPU {gpu.index}", gpu.name or "unknown"),
        ("  uuid", gpu.uuid or "unknown"),
        ("  memory", f"{gibibytes(gpu.memory_total_bytes)}, {gibibytes(gpu.memory_free_bytes)} free"),
        ("  compute", f"capability {gpu.compute_capability or 'unknown'}, {gpu.num_sms or 'unknown'} SMs"),
        ("  MIG", mig),
        *((f"  slice {part.index}", _slice(part)) for part in gpu.mig_devices),
    ]
    return _pairs(rows)


def _slice(part: MigDevice) -> str:
    size = f"{gibibytes(part.memory_total_bytes)}, {gibibytes(part.memory_free_bytes)} free"
    return f"{part.name or 'unknown'}\n{part.uuid or 'unknown'}\n{size}, {part.num_sms or 'unknown'} SMs"


def _attention(facts: Facts) -> RenderableType:
    if facts.torch is None:
        return Text("unknown: torch does not load")
    rows = []
    for device in facts.torch.devices:
        working = ", ".join(device.working_attention) or "none"
        idle = [f"{trial.backend}: {trial.reason}" for trial in device.attention if not trial.works]
        rows.append((device.device, "\n".join([f"works: {working}", *idle])))
    return _pairs(rows)


def _compilers(facts: Facts) -> RenderableType:
    tools = facts.toolchain
    rows = [
        (label, f"{compiler.name} {compiler.version}" if compiler else _NONE)
        for label, compiler in (("C", tools.c), ("C++", tools.cxx))
    ]
    rows += [("nvcc", tools.nvcc or _NONE), ("ptxas", tools.ptxas or _NONE)]
    for readiness in facts.torch.compile if facts.torch else ():
        rows.append((f"torch.compile, {readiness.device_type}", readiness.reason or "ready"))
    return _pairs(rows)


def _disks(facts: Facts) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("for")
    table.add_column("free", justify="right", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True)
    table.add_column("folder", overflow="fold")
    for disk in facts.disks:
        path = Text(str(disk.path) + ("" if disk.writable else " (read-only)"))
        table.add_row(disk.purpose, gigabytes(disk.free_bytes), gigabytes(disk.total_bytes), path)
    return table


def _findings(findings: Sequence[Finding]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        grid.add_row(Text(finding.level.value, style=_STYLES[finding.level]), _finding(finding))
    return grid


def _finding(finding: Finding) -> Text:
    if finding.level is Level.OK:
        return Text(f"{finding.found}. {finding.meaning}")
    lines = [finding.found, finding.meaning]
    if finding.fix:
        lines.append(f"Fix: {finding.fix}")
    body = Text("\n".join(lines))
    body.stylize("bold", 0, len(finding.found))
    return body


def _verdict(facts: Facts, findings: Sequence[Finding]) -> Text:
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    if counts[Level.PROBLEM]:
        return Text(
            "Calotype cannot run here until the problems above are fixed.", style=_STYLES[Level.PROBLEM]
        )
    place = facts.cuda_devices[0].name if facts.cuda_devices else "the CPU"
    counted = " and ".join(_count(counts[level], level.value) for level in (Level.WARNING, Level.NOTE))
    return Text(f"Calotype runs here, on {place}: {counted}.", style="bold")


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
