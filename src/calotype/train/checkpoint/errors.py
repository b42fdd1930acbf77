"""What can go wrong with a checkpoint that a user can put right. Knows nothing of how they are written."""

from __future__ import annotations

from pathlib import Path

from calotype.core.errors import CalotypeError, DiskFullError, ModelFileError


class DamagedCheckpointError(ModelFileError):
    """A checkpoint that is no longer what was written; `file` is its folder and `rule` what gave it away."""


class FolderInUseError(CalotypeError):
    """Another living process writes its checkpoints into the same folder."""


class CannotWriteError(CalotypeError):
    """A checkpoint could not be written; those before it and the training itself are as they were."""

    def __init__(
        self, folder: Path, reason: str, fix: str, *, needed_bytes: int | None, free_bytes: int | None
    ) -> None:
        self.folder, self.reason = folder, reason
        self.needed_bytes, self.free_bytes = needed_bytes, free_bytes
        needed = "" if needed_bytes is None else f"{needed_bytes} bytes are needed, "
        free = "how many are free is unknown" if free_bytes is None else f"{free_bytes} bytes are free"
        super().__init__(f"cannot write a checkpoint into {folder}: {reason} ({needed}{free}); {fix}")


class NoDiskSpaceError(CannotWriteError, DiskFullError):
    """The disk has less room than the checkpoint takes."""

    exit_code = DiskFullError.exit_code
