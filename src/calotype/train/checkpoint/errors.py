"""Checkpoint errors that a user can resolve."""

from __future__ import annotations

from pathlib import Path

from calotype.core.errors import CalotypeError, DiskFullError, ModelFileError


class DamagedCheckpointError(ModelFileError):
    """A checkpoint that is damaged; `file` is its folder and `rule` what is wrong with it."""


class FolderInUseError(CalotypeError):
    """Another running process writes its checkpoints into the same folder."""


class CannotWriteError(CalotypeError):
    """A checkpoint could not be written; earlier checkpoints and the training state are unchanged."""

    def __init__(
        self, folder: Path, reason: str, fix: str, *, needed_bytes: int | None, free_bytes: int | None
    ) -> None:
        self.folder, self.reason = folder, reason
        self.needed_bytes, self.free_bytes = needed_bytes, free_bytes
        needed = "" if needed_bytes is None else f"{needed_bytes} bytes are needed, "
        free = "the number of free bytes is unknown" if free_bytes is None else f"{free_bytes} bytes are free"
        super().__init__(f"cannot write a checkpoint into {folder}: {reason} ({needed}{free}); {fix}")


class NoDiskSpaceError(CannotWriteError, DiskFullError):
    """The disk has less free space than the checkpoint needs."""

    exit_code = DiskFullError.exit_code
