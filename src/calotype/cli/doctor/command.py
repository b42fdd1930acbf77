"""`calotype doctor`: collects facts about this machine and prints the findings of `diagnose`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calotype.cli.doctor.types import Facts, Finding
    from calotype.core.hardware import GpuSource
    from calotype.core.toolchain import Toolchain
    from calotype.engine.torch_info import TorchFacts


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")] = False,
) -> None:
    """Check this machine: versions, GPUs and MIG slices, attention kernels, compilers, disks.

    Explains each finding. Exits with 0 unless calotype cannot run at all on this machine.
    """
    from calotype.cli.doctor.diagnose import diagnose
    from calotype.cli.doctor.render import show
    from calotype.cli.doctor.types import Level
    from calotype.cli.output import console, print_json
    from calotype.core.errors import ExitCode
    from calotype.core.nvml import NvmlGpus

    facts = gather(NvmlGpus())
    findings = diagnose(facts)
    if as_json:
        print_json(report(facts, findings))
    else:
        show(console(), facts, findings)
    if any(finding.level is Level.PROBLEM for finding in findings):
        raise typer.Exit(int(ExitCode.NOT_FOUND))


def gather(source: "GpuSource") -> "Facts":
    """Collect all facts."""
    import os
    from pathlib import Path

    from calotype.cli.doctor.types import Facts
    from calotype.core.fingerprint import fingerprint
    from calotype.core.hardware import read_disk, read_memory
    from calotype.core.paths import cache_dir, models_dir
    from calotype.core.toolchain import read_toolchain

    survey = source.survey()
    toolchain = read_toolchain()
    torch, trouble = _read_torch(toolchain)
    folders = (("models", models_dir()), ("cache", cache_dir()), ("output", Path.cwd()))
    return Facts(
        fingerprint=fingerprint(survey),
        memory=read_memory(),
        gpus=survey,
        toolchain=toolchain,
        disks=tuple(read_disk(purpose, folder) for purpose, folder in folders),
        torch=torch,
        torch_trouble=trouble,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def report(facts: "Facts", findings: "Sequence[Finding]") -> dict[str, Any]:
    """The JSON form; its keys are part of the interface of the command."""
    from calotype.cli.doctor.render import version_rows
    from calotype.cli.doctor.types import Level

    seen = facts.fingerprint
    return {
        "able_to_run": all(finding.level is not Level.PROBLEM for finding in findings),
        "attention": {d.device: d.working_attention for d in facts.torch.devices} if facts.torch else {},
        "commit": {"id": seen.commit, "modified": seen.modified},
        "cpu": seen.cpu,
        "disks": facts.disks,
        "findings": findings,
        "gpus": facts.gpus,
        "memory": facts.memory,
        "system": {"kernel": seen.kernel, "operating_system": seen.operating_system},
        "toolchain": facts.toolchain,
        "torch": facts.torch,
        "versions": dict(version_rows(facts)),
    }


def _read_torch(toolchain: "Toolchain") -> "tuple[TorchFacts | None, str | None]":
    try:
        from calotype.engine.torch_info import torch_facts
    # torch raises OSError, not ImportError, if its libraries do not load.
    except (ImportError, OSError) as error:
        return None, str(error).strip().partition("\n")[0]
    return torch_facts(toolchain), None
