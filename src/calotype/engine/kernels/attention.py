"""Self-attention by our own Hopper kernel: the inputs it supports, and how it splits its work."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import num_multiprocessors, runs_gluon_on, runs_triton

DTYPES = (torch.float16, torch.bfloat16)
_FEWEST_PLACES, _FEWEST_ROUNDS = 4096, 8
"""Below this many rounds cuDNN's kernel is as fast or faster; rounds are of all teams over all heads."""
_ALIGNED = 16
"""Alignment in bytes that the copy engine requires."""


@dataclass(frozen=True)
class Plan:
    """How the kernel splits its work."""

    queries: int = 64
    """Queries per team at a time."""
    keys: int = 128
    """Keys, and as many values, that are fetched and multiplied at a time."""
    stages: int = 2
    """Buffers of so many keys and values in shared memory."""
    teams: int = 2
    """Warpgroups of four warps each, beside the fetching warp: one to three."""
    turns: bool = False
    """Whether teams issue products in turn, so that one computes softmax while another's products run."""
    split: bool = False
    """Whether 33 to 48 channels are multiplied as 32 and 16 columns, not as 64 of which some are zeros."""

    def columns(self, channels: int) -> tuple[int, int]:
        """Columns of a head in shared memory: the first part and the second, 0 if there is none."""
        return (32, 16) if self.split and 32 < channels <= 48 else (64, 0)


PLANS = {64: Plan(teams=3, turns=True), 40: Plan(teams=3, turns=True, split=True)}
"""Channels of a head → the fastest plan on an H200 of those in `tests/gpu/attention.py`."""


def supports(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel supports them; all are (rows, heads, positions, channels)."""
    all_three = (query, key, value)
    if not all(runs_triton(x) and x.dtype in DTYPES for x in all_three) or not runs_gluon_on(query.device):
        return False
    rows, heads, places, channels = query.shape
    plan = PLANS.get(channels)
    if plan is None or not query.shape == key.shape == value.shape:
        return False
    if places < _FEWEST_PLACES or places % plan.keys:
        return False
    at_once = plan.teams * plan.queries * num_multiprocessors(query.device)
    return rows * heads * places >= _FEWEST_ROUNDS * at_once and all(map(_readable, all_three))


def _readable(x: Tensor) -> bool:
    """Whether the copy engine can read it in place: for instance parts of one fused projection."""
    strides = (stride * x.element_size() for stride in x.stride()[:-1])
    return x.stride(-1) == 1 and not any(each % _ALIGNED for each in (x.data_ptr(), *strides))


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of supported inputs; scores are divided by the square root of the channels, as usual.

    The result is (rows, heads, places, channels) and lies as (rows, places, heads, channels): what the next
    product reads is a view of it.
    """
    from calotype.engine.kernels import attention_hopper  # noqa: PLC0415 - needs Triton

    return attention_hopper.launch(query, key, value, PLANS[query.shape[-1]])
