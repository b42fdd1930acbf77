"""The environment section: hardware and software of each machine, one column each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calotype.bench.report.document import Cell, Table, words
from calotype.spec.records.measurement import Measurement

_GIB = 2**30
_ORDER = ("device", "GPUs in the machine", "driver", "CUDA", "cuDNN")
"""Rows that come first, whichever machine has them."""


def environment(measurements: Sequence[Measurement]) -> Table:
    """Describe each machine once, with all Calotype versions that ran on it."""
    versions: dict[str, dict[str, None]] = {}
    facts: dict[str, dict[str, str]] = {}
    for m in measurements:
        if values := _facts(m):
            facts[repr(values)] = values
            versions.setdefault(repr(values), {})[_ours(m)] = None
    machines = [{**values, "Calotype": "; ".join(versions[key])} for key, values in facts.items()]
    if not machines:
        machines = [{"device": ", ".join(dict.fromkeys(m.device for m in measurements))}]
    known = dict.fromkeys(key for machine in machines for key in machine)
    keys = sorted(known, key=lambda key: _ORDER.index(key) if key in _ORDER else len(_ORDER))
    heads = ["machine"] if len(machines) == 1 else [f"machine {n}" for n in range(1, len(machines) + 1)]
    rows = [(Cell(key), *(words(machine.get(key, "")) for machine in machines)) for key in keys]
    return Table("Machines that took the measurements.", ("property", *heads), tuple(rows), still=True)


def _facts(m: Measurement) -> dict[str, str]:
    machine = m.fingerprint.get("machine", m.fingerprint)
    if not isinstance(machine, Mapping) or not machine:
        return {}
    torch = m.fingerprint.get("torch") or {}
    packages = {**(machine.get("packages") or {}), "torch": torch.get("version")}
    packages["torch"] = packages["torch"] or (machine.get("packages") or {}).get("torch")
    facts = {
        "device": m.device,
        "GPUs in the machine": "; ".join(map(_gpu, machine.get("gpus") or ())),
        "driver": machine.get("driver"),
        "CUDA": torch.get("cuda") or machine.get("driver_cuda"),
        "cuDNN": torch.get("cudnn"),
        "CPU": _cpu(machine.get("cpu") or {}),
        "main memory": _gib(machine.get("memory_total_bytes")),
        "operating system": ", ".join(filter(None, (machine.get("operating_system"), machine.get("kernel")))),
        "Python": machine.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
    }
    return {key: str(value) for key, value in facts.items() if value}


def _gpu(gpu: Mapping[str, Any]) -> str:
    slices = [str(one) for one in gpu.get("mig_devices") or ()]
    parts = (gpu.get("name"), _gib(gpu.get("memory_total_bytes")), f"slices {slices}" if slices else "")
    return ", ".join(str(part) for part in parts if part)


def _cpu(cpu: Mapping[str, Any]) -> str:
    cores = cpu.get("num_usable_cores") or cpu.get("num_cores")
    return ", ".join(str(part) for part in (cpu.get("model"), cores and f"{cores} cores") if part)


def _gib(count: int | None) -> str:
    return f"{count / _GIB:.0f} GiB" if count else ""


def _ours(m: Measurement) -> str:
    machine = m.fingerprint.get("machine", m.fingerprint)
    commit = f"commit {m.commit[:12]}" if m.commit else ""
    changed = "with uncommitted changes" if m.modified else ""
    return ", ".join(str(part) for part in (machine.get("calotype"), commit, changed) if part)
