"""What torch can do on this machine: its build, its devices, the attention kernels that run, torch.compile.

Together with the machine's fingerprint this describes the environment in a benchmark record.
"""

import importlib
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch

from calotype.core.fingerprint import Fingerprint, fingerprint
from calotype.core.toolchain import Toolchain, read_toolchain
from calotype.engine.attention_backends import AttentionTrial, first_line, try_attention


@dataclass(frozen=True)
class TorchDevice:
    """A device as torch sees it."""

    device: str
    name: str | None
    compute_capability: str | None
    memory_total_bytes: int | None
    num_sms: int | None
    attention: tuple[AttentionTrial, ...]

    @property
    def working_attention(self) -> tuple[str, ...]:
        return tuple(trial.backend for trial in self.attention if trial.works)


@dataclass(frozen=True)
class CompileReadiness:
    """Whether torch.compile can work on a kind of device; `reason` names what is missing."""

    device_type: str
    ready: bool
    reason: str | None = None


@dataclass(frozen=True)
class TorchFacts:
    """Torch's build and what works with it here."""

    version: str
    cuda: str | None
    cudnn: str | None
    cxx11_abi: bool
    arch_list: tuple[str, ...]
    num_threads: int
    num_interop_threads: int
    devices: tuple[TorchDevice, ...]
    compile: tuple[CompileReadiness, ...]
    cuda_trouble: str | None
    """Why a CUDA build finds no device; None when it finds one or is no CUDA build."""


@dataclass(frozen=True)
class FullFingerprint:
    """The environment as a benchmark record describes it."""

    machine: Fingerprint
    torch: TorchFacts

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def full_fingerprint() -> FullFingerprint:
    """The machine's fingerprint together with torch's."""
    return FullFingerprint(fingerprint(), torch_facts())


def torch_facts(toolchain: Toolchain | None = None) -> TorchFacts:
    """Collect torch's build facts and try its attention kernels on every device it sees."""
    num_gpus, trouble = _count_gpus()
    gpus = tuple(_cuda_device(index) for index in range(num_gpus))
    return TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        cudnn=_cudnn_version(),
        cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        arch_list=tuple(torch.cuda.get_arch_list()),
        num_threads=torch.get_num_threads(),
        num_interop_threads=torch.get_num_interop_threads(),
        devices=(*gpus, TorchDevice("cpu", None, None, None, None, try_attention("cpu"))),
        compile=_compile_readiness(toolchain or read_toolchain(), with_cuda=bool(gpus)),
        cuda_trouble=trouble,
    )


def _count_gpus() -> tuple[int, str | None]:
    if torch.version.cuda is None:
        return 0, None
    with warnings.catch_warnings():
        # `torch.cuda.is_available` hides the reason behind a warning; initialization raises it.
        warnings.simplefilter("ignore")
        try:
            torch.cuda.init()
            return torch.cuda.device_count(), None
        except (RuntimeError, AssertionError) as error:
            return 0, first_line(str(error))


def _cudnn_version() -> str | None:
    """torch reports 9.10.2 as 91002; before version 9 the major version counted thousands."""
    number = torch.backends.cudnn.version()
    if number is None:
        return None
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _cuda_device(index: int) -> TorchDevice:
    properties = torch.cuda.get_device_properties(index)
    return TorchDevice(
        device=f"cuda:{index}",
        name=properties.name,
        compute_capability=f"{properties.major}.{properties.minor}",
        memory_total_bytes=properties.total_memory,
        num_sms=properties.multi_processor_count,
        attention=try_attention(f"cuda:{index}"),
    )


def _compile_readiness(toolchain: Toolchain, *, with_cuda: bool) -> tuple[CompileReadiness, ...]:
    missing = {"cuda": _missing_for_cuda(toolchain)} if with_cuda else {}
    missing["cpu"] = _missing_for_cpu(toolchain)
    return tuple(CompileReadiness(place, reason is None, reason) for place, reason in missing.items())


def _missing_for_cpu(toolchain: Toolchain) -> str | None:
    if toolchain.cxx is None:
        return "no C++ compiler"
    if not toolchain.cxx.builds_extensions:
        return f"{toolchain.cxx.name} does not find Python's headers or OpenMP"
    return None


def _missing_for_cuda(toolchain: Toolchain) -> str | None:
    try:
        importlib.import_module("triton")
    except (ImportError, OSError, RuntimeError):
        return "triton cannot be imported"
    # Triton builds a small launcher with the C compiler the first time a kernel runs.
    if toolchain.c is None:
        return "no C compiler"
    if not toolchain.c.builds_extensions:
        return f"{toolchain.c.name} does not find Python's headers"
    return None
