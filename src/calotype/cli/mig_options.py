"""Options that the verbs of `calotype mig` share, and where a change keeps the way back."""

from pathlib import Path
from typing import Annotated

import typer

Driver = Annotated[
    str,
    typer.Option(
        envvar="CALOTYPE_MIG_DRIVER", help="auto, nvml, nvidia-smi, or simulated:FILE (see `mig simulate`)."
    ),
]
Gpu = Annotated[int, typer.Option(min=0, help="Which GPU, by its index.")]
Label = Annotated[str | None, typer.Option(help="Which configuration of a mig-parted file.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(help="Records of `calotype bench inference`, or of training, for train:NAME."),
]
Wants = Annotated[
    str,
    typer.Argument(
        help="What must run: 3×sd15@4,1×sdxl · 2×24gb/0.4 (memory/share of speed) · *×sd15 (as many as fit) "
        "· 2g.20gb×3,1g.10gb+me · 14,14,14,20."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this only shows what would be done.")]


def save_path(gpu: int) -> Path:
    """A new file for the layout a GPU has now."""
    from datetime import UTC, datetime

    from calotype.core.paths import state_dir

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return state_dir() / "mig" / f"gpu{gpu}-{stamp}.json"
