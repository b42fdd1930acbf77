"""Options that the commands of `calotype mig` share, and the file for the former layout of a GPU."""

from pathlib import Path
from typing import Annotated

import typer

Driver = Annotated[
    str,
    typer.Option(
        envvar="CALOTYPE_MIG_DRIVER",
        help="Driver interface: auto, nvml, nvidia-smi, or simulated:FILE (see `mig simulate`).",
    ),
]
Gpu = Annotated[int, typer.Option(min=0, help="Index of the GPU.")]
Label = Annotated[str | None, typer.Option(help="Name of the configuration in a mig-parted file.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(help="Records of `calotype bench inference`, or of training for train:NAME; repeatable."),
]
Wants = Annotated[
    str,
    typer.Argument(
        help="Workloads: 3×sd15@4,1×sdxl · 2×24gb/0.4 (memory/share of speed) · *×sd15 (as many as fit) "
        "· 2g.20gb×3,1g.10gb+me · 14,14,14,20."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Apply the changes. Default: only show them.")]


def save_path(gpu: int) -> Path:
    """A new file to save the present layout of a GPU in."""
    from datetime import UTC, datetime

    from calotype.core.paths import state_dir

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return state_dir() / "mig" / f"gpu{gpu}-{stamp}.json"
