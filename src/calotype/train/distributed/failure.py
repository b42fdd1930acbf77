"""Handle lost ranks: report the loss and exit, so that torchrun restarts this process.

A peer that dies closes its connections; one that is cut off does not, and only a timeout detects it
(`trainer.peer_timeout_s`).
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
"""The timeout of a checkpoint, as a multiple of a collective's timeout."""
_PR_SET_PDEATHSIG = 1
_GLOO = "gloo/"
_PLACE_IN_SOURCE = re.compile(r"^\[[^\]]*:\d+\]\s*")


class RanksLostError(CalotypeError):
    """Other ranks of the run are gone; nothing is wrong with this one."""

    exit_code = ExitCode.PEERS_LOST


def is_rank_loss(error: BaseException) -> bool:
    """Whether torch reports a failed collective: NCCL and stores have exception types, gloo only messages."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and _GLOO in str(error))


def lost_ranks(error: BaseException, rank: int, world_size: int, timeout_s: float) -> RanksLostError:
    """The user-facing error for a lost rank, including what happens next."""
    reason = _PLACE_IN_SOURCE.sub("", str(error).strip().split("\n", 1)[0]).rstrip(".")
    who = f"rank {rank} of {world_size} on {socket.gethostname()}"
    return RanksLostError(
        f"{who} lost the other processes of the run: {reason}. It waits at most trainer.peer_timeout_s="
        f"{timeout_s:g} s for them. The steps after the last checkpoint are trained again when torchrun "
        "restarts the processes (--max-restarts), or by the same command"
    )


def peers_stopped(step: int, rank: int, world_size: int) -> RanksLostError:
    """Another rank got a stop signal and this one did not: with exit code 0 torchrun would not restart it."""
    who = f"rank {rank} of {world_size} on {socket.gethostname()}"
    return RanksLostError(
        f"{who} ended at step {step}, which is saved, because another process of the run got a stop signal; "
        "it resumes from there when torchrun restarts it"
    )


def is_under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def exit_with_launcher() -> None:
    """Request SIGTERM when the parent process dies: nothing else would end this process, and the next one
    would find its device in use."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
