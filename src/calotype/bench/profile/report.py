"""Formats a profile as rows and as Markdown, and writes its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from calotype.bench.profile.options import RECORD, SUMMARY
from calotype.core.paths import atomic_write
from calotype.spec.records.profile import ProfileRecord
from calotype.spec.records.train_benchmark import markdown

Rows = Sequence[Mapping[str, str]]


def headline(record: ProfileRecord) -> list[str]:
    """Summarize the profile in a few lines."""
    whose = "device kernels" if record.clock == "device" else "CPU operations"
    lines = [f"{record.job} on {record.device}: {record.window_s * 1e3:.1f} ms of {whose}"]
    if record.unprofiled_s:
        slower = record.window_s / record.unprofiled_s
        lines.append(
            f"{record.unprofiled_s * 1e3:.1f} ms without the profiler, which takes {slower:.2f}× as long "
            f"and widens the gaps"
        )
    return lines


def group_rows(record: ProfileRecord) -> Rows:
    """Return the rows of kernel groups."""
    return [
        {
            "group": one.group,
            "ms": f"{one.seconds * 1e3:.2f}",
            "share": f"{one.share:.1%}",
            "count": str(one.count),
        }
        for one in record.groups
    ]


def kernel_rows(record: ProfileRecord, top: int) -> Rows:
    """Return the rows of the longest kernels or operations."""
    return [
        {
            "share": f"{one.share:.1%}",
            "ms": f"{one.seconds * 1e3:.2f}",
            "count": str(one.count),
            "mean µs": f"{one.mean_us:.1f}",
            "group": one.group,
            "name": one.short_name,
            "what it is": one.what,
        }
        for one in record.kernels[:top]
    ]


def stage_rows(record: ProfileRecord) -> Rows:
    """Return the rows of the job's stages."""
    return [
        {
            "stage": one.name,
            "count": str(one.count),
            "host ms": f"{one.host_s * 1e3:.2f}",
            "device ms": "" if one.device_s is None else f"{one.device_s * 1e3:.2f}",
        }
        for one in record.stages
    ]


def page(record: ProfileRecord, top: int) -> str:
    """Format the profile as Markdown."""
    parts = ["# Profile", f"`{record.command}`", *headline(record), markdown(group_rows(record))]
    parts += [record.waiting.message, *(f"- {advice}" for advice in record.waiting.advice)]
    if record.stages:
        parts += ["## Stages", markdown(stage_rows(record))]
    parts += ["## Longest", markdown(kernel_rows(record, top))]
    parts += ["## More detail", f"`{record.trace}` opens in https://ui.perfetto.dev or chrome://tracing."]
    for one in record.nsight:
        missing = "" if one.installed else " (not installed here)"
        parts.append(f"`{one.program}`{missing}: {one.shows}.\n\n```\n{one.command}\n```")
    return "\n\n".join(parts) + "\n"


def write(record: ProfileRecord, out: Path, top: int) -> None:
    """Write the record and its Markdown beside the existing trace."""
    with atomic_write(out / RECORD, "w") as file:
        file.write(record.model_dump_json(indent=1) + "\n")
    with atomic_write(out / SUMMARY, "w") as file:
        file.write(page(record, top))
