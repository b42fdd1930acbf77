"""Machines to diagnose: plain facts, and a source of cards that can also fail."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calotype.cli.doctor.types import GB, GIB, Facts
from calotype.core.fingerprint import Fingerprint
from calotype.core.hardware import Cpu, Disk, Gpu, GpuSurvey, GpuTrouble, Memory, TroubleKind
from calotype.core.toolchain import Compiler, Toolchain
from calotype.engine.attention_backends import AttentionTrial
from calotype.engine.torch_info import CompileReadiness, TorchDevice, TorchFacts

NO_DRIVER = GpuSurvey(trouble=GpuTrouble(TroubleKind.NO_DRIVER, "NVML Shared Library Not Found"))
H200 = Gpu(0, "NVIDIA H200", "GPU-0", 140 * GIB, 139 * GIB, 132, "9.0")
COMPILERS = Toolchain(Compiler("cc", "13.3.0", True), Compiler("g++", "13.3.0", True), None, None)

_PACKAGES = ("diffusers", "peft", "safetensors", "tokenizers", "torch", "torchao", "transformers", "triton")


@dataclass(frozen=True)
class PretendedGpus:
    """A `GpuSource` that answers what it was given, trouble included."""

    answer: GpuSurvey

    def survey(self) -> GpuSurvey:
        return self.answer


def torch_device(
    device: str, *working: str, capability: str = "9.0", reason: str = "no kernel"
) -> TorchDevice:
    names = ("flash", "math") if device == "cpu" else ("flash", "efficient", "cudnn", "math")
    trials = tuple(
        AttentionTrial(name, name in working, None if name in working else reason) for name in names
    )
    return TorchDevice(device, "NVIDIA H200" if device != "cpu" else None, capability, 140 * GIB, 132, trials)


def torch_on_cpu(**changes: Any) -> TorchFacts:
    facts = TorchFacts(
        version="2.13.0+cpu",
        cuda=None,
        cudnn=None,
        cxx11_abi=True,
        arch_list=(),
        num_threads=8,
        num_interop_threads=8,
        devices=(torch_device("cpu", "flash", "math"),),
        compile=(CompileReadiness("cpu", True),),
        cuda_trouble=None,
    )
    return replace(facts, **changes)


def torch_on_gpu(card: TorchDevice | None = None, **changes: Any) -> TorchFacts:
    devices = (card or torch_device("cuda:0", "flash", "efficient", "cudnn", "math"),)
    ready = (CompileReadiness("cuda", True), CompileReadiness("cpu", True))
    return torch_on_cpu(
        **({"cuda": "13.0", "cudnn": "9.10.2", "devices": devices, "compile": ready} | changes)
    )


def machine(**changes: Any) -> Facts:
    """A machine on which nothing is wrong and which has no card, but for the changes."""
    seen = Fingerprint(
        calotype="0.1.0",
        commit=None,
        modified=None,
        python="3.12.3 (CPython)",
        packages=dict.fromkeys(_PACKAGES, "1.0"),
        operating_system="Linux",
        kernel="Linux 6.1",
        cpu=Cpu("Some CPU", "x86_64", 8, 8),
        memory_total_bytes=64 * GIB,
        driver=None,
        driver_cuda=None,
        gpus=(),
    )
    disks = tuple(
        Disk(purpose, Path("/data"), 900 * GB, 500 * GB, True) for purpose in ("models", "cache", "output")
    )
    facts = Facts(seen, Memory(64 * GIB, 60 * GIB, None), NO_DRIVER, COMPILERS, disks, torch_on_cpu())
    return replace(facts, **changes)


def with_packages(facts: Facts, **versions: str | None) -> Facts:
    seen = facts.fingerprint
    return replace(facts, fingerprint=replace(seen, packages={**seen.packages, **versions}))
