"""Options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout, for programs.")]
ModelsFolder = Annotated[
    Path | None,
    typer.Option(
        "--models", help="Model folder with checkpoints/ loras/ vae/ embeddings/; or set CALOTYPE_MODELS."
    ),
]
Dtype = Annotated[str, typer.Option(help="fp32, fp16 or bf16.")]
