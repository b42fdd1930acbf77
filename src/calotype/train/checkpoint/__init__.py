"""Checkpoints of a run: atomic, verified by digests, written by all ranks together.

A folder counts as a checkpoint only when it is complete, and only complete checkpoints are loaded.

Reading order: `flatten` (nested values ↔ tensors and JSON) with `tensor_subclasses`; `fs` and `serialization`
(to the disk and back); `manifest` (what makes a folder complete); `discovery` and `retention` (which
checkpoints a folder holds, which may be deleted); `folder_lock`, `disk_space`; `writer` (one checkpoint, by
all ranks); `loader`; `manager` (all checkpoints of a run); `host_copy` and `async_saver` (saving in the
background); `rank_sync` and `preemption` (coordination of ranks, stop signals).
"""

from calotype.train.checkpoint.async_saver import BackgroundSaver
from calotype.train.checkpoint.discovery import Checkpoint
from calotype.train.checkpoint.disk_space import check_free_space
from calotype.train.checkpoint.errors import (
    CannotWriteError,
    DamagedCheckpointError,
    FolderInUseError,
    NoDiskSpaceError,
)
from calotype.train.checkpoint.folder_lock import claimed
from calotype.train.checkpoint.manager import CheckpointManager, Loaded
from calotype.train.checkpoint.preemption import StopSignal, agreed
from calotype.train.checkpoint.rank_sync import Ranks, separate_ranks

__all__ = [
    "BackgroundSaver",
    "CannotWriteError",
    "Checkpoint",
    "CheckpointManager",
    "DamagedCheckpointError",
    "FolderInUseError",
    "Loaded",
    "NoDiskSpaceError",
    "Ranks",
    "StopSignal",
    "agreed",
    "check_free_space",
    "claimed",
    "separate_ranks",
]
