"""Attention of places to each other by a kernel of our own: what it takes, and how it cuts its work.

Knows nothing of networks, nor of what is to be done with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calotype.engine.kernels.dispatch import num_multiprocessors, runs_gluon_on, runs_triton

DTYPES = (torch.float16, torch.bfloat16)
_FEWEST_PLACES, _FEWEST_ROUNDS = 4096, 8
"""Below, cuDNN's is as fast or faster: rounds are of all teams over all rows, heads and places."""
_ALIGNED = 16
"""Bytes, of what the copy engine reads."""


@dataclass(frozen=True)
class Plan:
    """How the kernel cuts its work."""

    queries: int = 64
    """Of each team at a time."""
    keys: int = 128
    """Fetched and multiplied at a time, and as many values."""
    stages: int = 2
    """Pieces of so many keys and values in shared memory."""
    teams: int = 2
    """Of four warps each, beside the one that fetches: one to three."""
    turns: bool = False
    """Whether teams ask for products in turn, so that one works out shares while another's are under way."""
    split: bool = False
    """Whether 33 to 48 channels are multiplied as 32 and 16 columns, not as 64 of which some are zeros."""

    def columns(self, channels: int) -> tuple[int, int]:
        """That a head takes in shared memory: the first part and the second, 0 if there is none."""
        return (32, 16) if self.split and 32 < channels <= 48 else (64, 0)


PLANS = {64: Plan(teams=3, turns=True), 40: Plan(teams=3, turns=True, split=True)}
"""By the channels of a head, the fastest on an H200 of those in `tests/gpu/attention.py`."""


def supports(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel takes them; all are (rows, heads, places, channels)."""
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
    """Whether the copy engine can read it where it lies: parts of one product with heads inside, for one."""
    strides = (stride * x.element_size() for stride in x.stride()[:-1])
    return x.stride(-1) == 1 and not any(each % _ALIGNED for each in (x.data_ptr(), *strides))


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Of what suits; scores are divided by the root of the channels, as usual.

    The result is (rows, heads, places, channels) and lies as (rows, places, heads, channels): what the next
    product reads is a view of it.
    """
    from calotype.engine.kernels import attention_hopper  # noqa: PLC0415 - needs Triton

    return attention_hopper.launch(query, key, value, PLANS[query.shape[-1]])
