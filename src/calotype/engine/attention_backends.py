"""Tries each attention kernel of torch on a tiny input and compares the output with plain arithmetic.

A kernel that torch lists may still not run on a GPU, so the only reliable check is to run it.
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
    """Query, key and value, and the output of plain arithmetic in fp32 on the CPU."""

    inputs: tuple[torch.Tensor, ...]
    expected: torch.Tensor


def try_attention(device: str) -> tuple[AttentionTrial, ...]:
    """Try every kernel that may run on `device`."""
    case = _attention_case()
    on_cpu = device == "cpu"
    dtype = torch.float32 if on_cpu else torch.float16
    trials = []
    for name, backend in (_CPU_BACKENDS if on_cpu else _CUDA_BACKENDS).items():
        reason = _failure_reason(backend, case, device, dtype)
        trials.append(AttentionTrial(name, reason is None, reason))
    return tuple(trials)


def first_line(message: str) -> str:
    """The first line of torch's message, without its C++ location and stack."""
    first = message.strip().partition("\n")[0].partition(" (Triggered internally")[0]
    return first if len(first) <= _MAX_REASON_LENGTH else f"{first[: _MAX_REASON_LENGTH - 3]}..."


def _attention_case() -> _AttentionCase:
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(1, 2, 64, 64, generator=generator) for _ in range(3))
    query, key, value = inputs
    weights = torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5, dim=-1)
    return _AttentionCase(inputs, weights @ value)


def _failure_reason(backend: SDPBackend, case: _AttentionCase, device: str, dtype: torch.dtype) -> str | None:
    """None if `backend` gives the expected output; otherwise the reason."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            query, key, value = (tensor.to(device, dtype) for tensor in case.inputs)
            with torch.inference_mode(), sdpa_kernel(backend):
                output = scaled_dot_product_attention(query, key, value)
            error = float((output.float().cpu() - case.expected).abs().max())
        except RuntimeError as failure:
            return _cause(failure, [str(warning.message) for warning in caught])
    # Written so that a NaN counts as wrong.
    return None if error < _HALF_PRECISION_ERROR else f"gives a wrong result (off by {error:.2g})"


def _cause(failure: RuntimeError, caught: list[str]) -> str:
    """Torch's warnings say why it rejected the requested kernel; its error says only that none was left."""
    causes = [text for text in caught if "not used because" not in text and "disabled" not in text]
    return first_line(causes[0] if causes else str(failure))
