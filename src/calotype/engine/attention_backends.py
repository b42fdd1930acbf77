"""Tries each attention kernel of torch on a tiny input and compares the answer with plain arithmetic.

A kernel that torch lists may still not run on a card, so the only honest question is to run it.
Knows nothing of models or presets.
"""

import warnings
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

_CPU_BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
_CUDA_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
_MAX_REASON_LENGTH = 160
_HALF_PRECISION_ERROR = 2e-2


@dataclass(frozen=True)
class AttentionTrial:
    """One attention kernel on one device; `reason` says why it does not work."""

    backend: str
    works: bool
    reason: str | None = None


@dataclass(frozen=True)
class _AttentionCase:
    """Query, key and value, and the answer that plain arithmetic gives in fp32 on the CPU."""

    inputs: tuple[torch.Tensor, ...]
    expected: torch.Tensor


def try_attention(device: str) -> tuple[AttentionTrial, ...]:
    """Every kernel that could run on `device`, with whether it does."""
    question = _question()
    on_cpu = device == "cpu"
    dtype = torch.float32 if on_cpu else torch.float16
    trials = []
    for name, backend in (_CPU_BACKENDS if on_cpu else _CUDA_BACKENDS).items():
        reason = _why_not(backend, question, device, dtype)
        trials.append(AttentionTrial(name, reason is None, reason))
    return tuple(trials)


def first_line(message: str) -> str:
    """Torch's messages without their C++ locations and stacks."""
    first = message.strip().partition("\n")[0].partition(" (Triggered internally")[0]
    return first if len(first) <= _MAX_REASON_LENGTH else f"{first[: _MAX_REASON_LENGTH - 3]}..."


def _question() -> _AttentionCase:
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(1, 2, 64, 64, generator=generator) for _ in range(3))
    query, key, value = inputs
    weights = torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5, dim=-1)
    return _AttentionCase(inputs, weights @ value)


def _why_not(backend: SDPBackend, question: _AttentionCase, device: str, dtype: torch.dtype) -> str | None:
    """None when `backend` gives the expected answer; otherwise the reason it does not."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            query, key, value = (tensor.to(device, dtype) for tensor in question.inputs)
            with torch.inference_mode(), sdpa_kernel(backend):
                answer = scaled_dot_product_attention(query, key, value)
            error = float((answer.float().cpu() - question.expected).abs().max())
        except RuntimeError as failure:
            return _cause(failure, [str(warning.message) for warning in said])
    # Written so that a NaN counts as wrong.
    return None if error < _HALF_PRECISION_ERROR else f"gives a wrong answer (off by {error:.2g})"


def _cause(failure: RuntimeError, said: list[str]) -> str:
    """Torch warns why it passed over the kernel asked for; its error says only that none was left."""
    causes = [text for text in said if "not used because" not in text and "disabled" not in text]
    return first_line(causes[0] if causes else str(failure))
