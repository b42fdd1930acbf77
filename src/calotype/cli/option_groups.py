"""Options that several verbs share, declared once: a dataclass, each of whose fields is an option.

A verb takes the dataclass as one of its parameters; on the command line its fields stand there instead.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


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
