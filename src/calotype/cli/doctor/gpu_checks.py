"""Findings about GPUs, their driver and MIG slices, and whether torch can use them."""

from collections.abc import Iterator

from calotype.cli.doctor.types import GIB, Facts, Finding, Level, gibibytes
from calotype.core.hardware import Gpu, TroubleKind

_ON_THE_CPU = "Images are generated on the CPU: the embedded model takes seconds, SDXL minutes."

_OLDEST_WITH_FP8 = (8, 9)

_DRIVER_TROUBLES = {
    TroubleKind.NOT_LOADED: (
        "The NVIDIA driver is installed but not loaded",
        "Load it (sudo modprobe nvidia) or restart the machine.",
    ),
    TroubleKind.NO_PERMISSION: (
        "The NVIDIA driver refuses this user",
        "Give the user access to /dev/nvidia*, or start the container with GPU access.",
    ),
    TroubleKind.TOO_OLD: (
        "The NVIDIA driver is too old to be queried",
        "Install a current driver.",
    ),
    TroubleKind.MISMATCH: (
        "The NVIDIA driver was changed while it was loaded",
        "Restart the machine so that its library and its kernel module are the same version.",
    ),
    TroubleKind.OTHER: (
        "The NVIDIA driver does not answer",
        "Run nvidia-smi and follow what it says.",
    ),
}


def findings(facts: Facts) -> Iterator[Finding]:
    yield from _driver(facts)
    yield from _use(facts)
    yield from _attention(facts)
    for gpu in facts.gpus.gpus:
        yield from _refusals(gpu)
        yield from _mig(gpu)
        yield from _memory(gpu)


def _driver(facts: Facts) -> Iterator[Finding]:
    trouble = facts.gpus.trouble
    if trouble is None:
        return
    if facts.cuda_devices:
        yield Finding(
            Level.NOTE,
            "driver",
            f"Torch sees a GPU, but the driver cannot be queried about it: {trouble.message}",
            "Images are generated on the GPU; free memory and MIG slices cannot be shown.",
            "In a container, add 'utility' to NVIDIA_DRIVER_CAPABILITIES.",
        )
    elif trouble.kind is TroubleKind.NO_DRIVER:
        yield Finding(
            Level.NOTE,
            "gpu",
            "No GPU: there is no NVIDIA driver on this machine",
            _ON_THE_CPU,
            "If there is an NVIDIA card, install its driver; start a container with GPU access.",
        )
    else:
        found, fix = _DRIVER_TROUBLES[trouble.kind]
        yield Finding(Level.WARNING, "driver", f"{found}: {trouble.message}", _ON_THE_CPU, fix)


def _use(facts: Facts) -> Iterator[Finding]:
    """Whether torch can use the GPUs that the driver reports."""
    torch, gpus = facts.torch, facts.gpus.gpus
    if torch is None:
        return
    if facts.cuda_devices:
        names = ", ".join(f"{device.device} ({device.name})" for device in facts.cuda_devices)
        yield Finding(Level.OK, "gpu", f"Torch can use {names}", "Images are generated on the GPU.")
        yield from _limits(facts)
    elif not gpus and facts.gpus.trouble is None:
        yield Finding(Level.NOTE, "gpu", "No GPU: the driver shows no card", _ON_THE_CPU)
    elif gpus and torch.cuda is None:
        yield Finding(
            Level.WARNING,
            "gpu",
            f"There is a GPU, but torch {torch.version} is built without CUDA",
            _ON_THE_CPU,
            "Install a CUDA build of torch (pytorch.org says which one suits the driver).",
        )
    elif gpus:
        yield _unusable(facts, torch.cuda_trouble)


def _limits(facts: Facts) -> Iterator[Finding]:
    """Limits on the use of GPUs."""
    num_used, num_gpus = len(facts.cuda_devices), len(facts.gpus.gpus)
    if facts.visible_devices is not None and num_used < num_gpus:
        yield Finding(
            Level.NOTE,
            "gpu",
            f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} shows torch {num_used} of {num_gpus} GPUs",
            "Calotype does not use the others.",
            "Unset CUDA_VISIBLE_DEVICES to use them all.",
        )
    for device in facts.cuda_devices:
        major, _, minor = (device.compute_capability or "0.0").partition(".")
        if (int(major), int(minor)) < _OLDEST_WITH_FP8:
            yield Finding(
                Level.NOTE,
                "gpu",
                f"{device.device} has compute capability {device.compute_capability}",
                "The fp8 preset needs 8.9 or newer; int8 and the others work.",
            )


def _unusable(facts: Facts, reason: str | None) -> Finding:
    if facts.visible_devices is not None:
        return Finding(
            Level.WARNING,
            "gpu",
            f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} hides every GPU from torch",
            _ON_THE_CPU,
            "Unset CUDA_VISIBLE_DEVICES, or name a card or slice in it.",
        )
    return Finding(
        Level.WARNING,
        "gpu",
        f"Torch cannot use the GPU: {reason or 'it gives no reason'}",
        _ON_THE_CPU,
        "Torch's CUDA must not be newer than the driver's: upgrade the driver, or change the torch build.",
    )


def _attention(facts: Facts) -> Iterator[Finding]:
    for device in facts.torch.devices if facts.torch else ():
        working = device.working_attention
        on_gpu = device.device.startswith("cuda")
        if not working:
            reason = device.attention[0].reason if device.attention else "nothing was tried"
            yield Finding(
                Level.WARNING,
                "attention",
                f"No attention kernel runs on {device.device}: {reason}",
                "No image can be generated on this device.",
                "Install a torch build made for it." if on_gpu else "Reinstall torch.",
            )
        elif working == ("math",):
            yield Finding(
                Level.WARNING,
                "attention",
                f"Only plain (math) attention works on {device.device}",
                "Slower, and large images need much more memory.",
                "Cards from compute capability 8.0 on have the fast kernels." if on_gpu else None,
            )
        else:
            yield Finding(
                Level.OK,
                "attention",
                f"Attention on {device.device}: {', '.join(working)}",
                "Fast attention is available.",
            )


def _refusals(gpu: Gpu) -> Iterator[Finding]:
    if gpu.refusals and gpu.name is None:
        yield Finding(
            Level.WARNING,
            "driver",
            f"GPU {gpu.index} does not answer ({'; '.join(gpu.refusals)})",
            "No work can run on it.",
            "Run as a user with access to the card; if it is lost or needs a reset, restart the machine.",
        )
    elif gpu.refusals:
        yield Finding(
            Level.WARNING,
            "driver",
            f"GPU {gpu.index} does not report everything ({'; '.join(gpu.refusals)})",
            "Missing values are shown as unknown; memory estimates are rougher.",
            "Run as a user with access to the card.",
        )


def _mig(gpu: Gpu) -> Iterator[Finding]:
    if gpu.mig is None:
        return
    if gpu.mig.current != gpu.mig.pending:
        now, then = ("on", "off") if gpu.mig.current else ("off", "on")
        yield Finding(
            Level.WARNING,
            "mig",
            f"MIG mode is pending on GPU {gpu.index}: {now} now, {then} after a reset",
            "The card keeps its current layout until then.",
            f"Stop all work on the card, then: sudo nvidia-smi --gpu-reset -i {gpu.index}",
        )
    num_slices = len(gpu.mig_devices)
    if gpu.mig.current and not num_slices:
        yield Finding(
            Level.WARNING,
            "mig",
            f"MIG mode is on, but GPU {gpu.index} has no slices",
            "No program can use this card.",
            "Create slices with `calotype mig apply`, or turn MIG mode off.",
        )
    elif gpu.mig.current:
        yield Finding(
            Level.OK,
            "mig",
            f"GPU {gpu.index} is partitioned into {num_slices} slice{'' if num_slices == 1 else 's'}",
            "Each slice works like a small GPU; choose one by its uuid in CUDA_VISIBLE_DEVICES.",
        )


def _memory(gpu: Gpu) -> Iterator[Finding]:
    """Which models fit into an unpartitioned card; with MIG, the slices have the memory."""
    free, total = gpu.memory_free_bytes, gpu.memory_total_bytes
    if free is None or total is None or (gpu.mig is not None and gpu.mig.current):
        return
    found = f"GPU {gpu.index} has {gibibytes(free)} of {gibibytes(total)} free"
    others = "Another program holds part of it; stop that one, or choose another card."
    fix = others if free < total // 2 else None
    if free >= 12 * GIB:
        yield Finding(Level.OK, "gpu", found, "SDXL in fp16 fits at 1024×1024.", fix)
    elif free >= 4 * GIB:
        yield Finding(
            Level.NOTE,
            "gpu",
            found,
            "SD 1.5 in fp16 fits; SDXL fits only one small image at a time, if at all.",
            fix,
        )
    else:
        yield Finding(Level.WARNING, "gpu", found, "Only the embedded model is sure to fit.", fix)
