"""Options that several verbs share, declared once: a dataclass, each of whose fields is an option.

A verb takes the dataclass as one of its parameters; on the command line its fields stand there instead.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from calotype.core.errors import Problem, RequestError


def with_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as Typer is to see it."""
    groups: dict[str, type[Any]] = {}
    shown: list[Parameter] = []
    for parameter in signature(verb).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            shown += _options(kind)
        else:
            shown.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(verb)
    def called(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        verb(**made, **values)

    called.__signature__ = Signature(shown)  # type: ignore[attr-defined]  # functions may have one
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return called


def _options(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


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
