"""Attention of places to each other, by a kernel of our own where it applies. Knows nothing of networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from calotype.engine.kernels.choice import runs_triton


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
    """Whether teams ask for products one after the other, so that one works out shares while another does."""
    split: bool = False
    """Whether 33 to 48 channels are multiplied as 32 and 16 columns, not as 64 of which some are zeros."""

    def columns(self, channels: int) -> tuple[int, int]:
        """That a head of so many channels takes in shared memory: first and second part; 0 for none."""
        return (32, 16) if self.split and 32 < channels <= 48 else (64, 0)
