"""Findings about packages, compilers and torch.compile."""

import re
from collections.abc import Iterator

from calotype.cli.doctor.types import Facts, Finding, Level

OLDEST_TORCH = (2, 10)
_REQUIRED = ("diffusers", "safetensors", "tokenizers", "transformers")


def findings(facts: Facts) -> Iterator[Finding]:
    yield from _torch(facts)
    yield from _packages(facts)
    yield from _compile(facts)


def _torch(facts: Facts) -> Iterator[Finding]:
    if facts.torch is None:
        yield Finding(
            Level.PROBLEM,
            "torch",
            f"torch does not load: {facts.torch_trouble or 'it is not installed'}",
            "calotype cannot generate or train anything.",
            "Install it into the Python that runs calotype: pip install torch",
        )
        return
    numbers = re.match(r"(\d+)\.(\d+)", facts.torch.version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        yield Finding(
            Level.WARNING,
            "torch",
            f"torch {facts.torch.version} is older than {'.'.join(map(str, OLDEST_TORCH))}",
            "calotype is not tested with it; some passes will fail.",
            "Upgrade it: pip install --upgrade torch",
        )


def _packages(facts: Facts) -> Iterator[Finding]:
    installed = facts.fingerprint.packages
    missing = [name for name in _REQUIRED if not installed.get(name)]
    if missing:
        yield Finding(
            Level.PROBLEM,
            "packages",
            f"Not installed: {', '.join(missing)}",
            "No model can be loaded.",
            f"pip install {' '.join(missing)}",
        )
    if not installed.get("peft"):
        yield Finding(
            Level.WARNING,
            "packages",
            "peft is not installed",
            "LoRA files cannot be used.",
            "pip install peft",
        )
    if not installed.get("torchao"):
        yield Finding(
            Level.NOTE,
            "packages",
            "torchao is not installed",
            "optimizer.name=adamw8bit is not available for training; all presets work.",
            "pip install 'calotype[train]'",
        )


def _compile(facts: Facts) -> Iterator[Finding]:
    for readiness in facts.torch.compile if facts.torch else ():
        place = "the GPU" if readiness.device_type == "cuda" else "the CPU"
        if readiness.ready:
            yield Finding(
                Level.OK,
                "compiler",
                f"torch.compile has what it needs on {place}",
                "The compile pass can be used there.",
            )
            continue
        # With a usable GPU, compiling for the CPU hardly matters.
        matters = readiness.device_type == "cuda" or not facts.cuda_devices
        yield Finding(
            Level.WARNING if matters else Level.NOTE,
            "compiler",
            f"torch.compile cannot work on {place}: {readiness.reason}",
            "The compile pass falls back to uncompiled code: same images, slower.",
            _compile_fix(readiness.reason or ""),
        )


def _compile_fix(reason: str) -> str:
    if "triton" in reason:
        return "Install the triton that belongs to this torch: pip install triton"
    if "headers" in reason:
        return "Install Python's headers and OpenMP: apt install python3-dev g++"
    return "Install a compiler: apt install g++"
