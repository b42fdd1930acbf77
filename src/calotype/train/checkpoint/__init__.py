"""Checkpoints that lose nothing: one counts only when it is complete, and nothing else is ever loaded.

Knows nested states of tensors and plain values, files and folders; nothing of models, losses or data.

Reading order: `state` (values ↔ tensors and JSON) with `wrapped_tensors`; `durable` and `state_files` (onto
the disk and back); `manifest` (what makes it complete); `survey` and `retention` (what lies in a folder, what
may go); `folder_lock`, `room`; `assembly` (one checkpoint, by all ranks together); `loading`; `store` (all of
them); `snapshot` and `saver` (in the background); `together` and `preemption` (among ranks, and when told to
stop).
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
