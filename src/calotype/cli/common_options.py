"""Options that several commands share, declared once as a dataclass with one field per option.

A command takes the dataclass as one of its parameters; the command line shows its fields instead.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from calotype.core.errors import Problem, RequestError


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command by its fields, which is the signature Typer reads."""
    groups: dict[str, type[Any]] = {}
    flattened: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            flattened += _options(kind)
        else:
            flattened.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def wrapper(**values: Any) -> None:
        instances = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**instances, **values)

    wrapper.__signature__ = Signature(flattened)  # type: ignore[attr-defined]  # functions accept it
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in flattened}
    return wrapper


def _options(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


_MODELS_HELP = "Model folder with checkpoints/, loras/, vae/ and embeddings/. Default: CALOTYPE_MODELS."


def check_models_folder(folder: Path | None) -> Path | None:
    """Return the folder; raise if it does not exist, as models would silently be searched elsewhere."""
    if folder is not None and not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        rule = f"{folder} {what}; name a model folder, or omit the option"
        raise RequestError([Problem("--models", rule, str(folder))])
    return folder


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout.")]
ModelsFolder = Annotated[
    Path | None, typer.Option("--models", callback=check_models_folder, help=_MODELS_HELP)
]
ModelsFolderThere = Annotated[Path | None, typer.Option("--models", help=_MODELS_HELP)]
"""The same, unchecked, for commands that may run on another machine with other folders."""
Dtype = Annotated[str, typer.Option(help="Data type of the weights: fp32, fp16 or bf16.")]
