"""Options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.core.errors import Problem, RequestError

_MODELS_HELP = "Model folder with checkpoints/ loras/ vae/ embeddings/; or set CALOTYPE_MODELS."


def check_models_folder(folder: Path | None) -> Path | None:
    """The folder, if it exists. Without one, models are looked for elsewhere in silence."""
    if folder is not None and not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        rule = f"{folder} {what}; name a model folder, or leave it out"
        raise RequestError([Problem("--models", rule, str(folder))])
    return folder


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout, for programs.")]
ModelsFolder = Annotated[
    Path | None, typer.Option("--models", callback=check_models_folder, help=_MODELS_HELP)
]
ModelsFolderThere = Annotated[Path | None, typer.Option("--models", help=_MODELS_HELP)]
"""The same where the work may run on another machine, whose folders are not here to be checked."""
Dtype = Annotated[str, typer.Option(help="fp32, fp16 or bf16.")]
