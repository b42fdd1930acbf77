"""What becomes of a process whose peers are gone: it says so and ends, so that torchrun starts it again.

A peer that died closes its connections, one that is cut off does not: there only a limit on waiting helps
(`trainer.peer_timeout_s`). Knows nothing of what the processes do together.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket

import torch.distributed as dist

from calotype.core.errors import CalotypeError, ExitCode

SAVES_TAKE = 3
"""A checkpoint is given so many times as long as an exchange."""
_PR_SET_PDEATHSIG = 1
_GLOO = "gloo/"
_PLACE_IN_SOURCE = re.compile(r"^\[[^\]]*:\d+\]\s*")


class RanksLostError(CalotypeError):
    """Other processes of the run are gone; nothing is wrong with this one."""

    exit_code = ExitCode.PEERS_LOST


def is_rank_loss(error: BaseException) -> bool:
    """Whether torch says that an exchange failed: NCCL and stores have types for it, gloo only words."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and _GLOO in str(error))


def lost_ranks(error: BaseException, rank: int, world_size: int, timeout_s: float) -> RanksLostError:
    """The same in words, with what happens next."""
    reason = _PLACE_IN_SOURCE.sub("", str(error).strip().split("\n", 1)[0]).rstrip(".")
    who = f"rank {rank} of {world_size} on {socket.gethostname()}"
    return RanksLostError(
        f"{who} lost the other processes of the run: {reason}. It waits at most trainer.peer_timeout_s="
        f"{timeout_s:g} s for them. What came after the last checkpoint is trained again when torchrun "
        "starts the processes again (--max-restarts), or by the same command"
    )


def peers_stopped(step: int, rank: int, world_size: int) -> RanksLostError:
    """Another process was told to stop and this one was not: with success its launcher would end for good."""
    who = f"rank {rank} of {world_size} on {socket.gethostname()}"
    return RanksLostError(
        f"{who} ended at step {step}, which is saved, because another process of the run was told to stop; "
        "it goes on from there when torchrun starts it again"
    )


def is_under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def exit_with_launcher() -> None:
    """Be told to stop when the process that started this one dies: nobody would end it otherwise, and the
    next one would find its device in use."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
