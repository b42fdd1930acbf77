"""Defines the inert stubs that replace the classes and functions a pickle names.

`validation` checks their values, because a pickle can change objects after it creates them. `allowlist` maps
names to stubs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from calotype.models.files.pickle_child.errors import RefusedError


class DType(NamedTuple):
    """Stands for a torch dtype, or for a class of storage that holds one."""

    name: str


class StorageRef(NamedTuple):
    """A tensor storage, by its key in the file. All fields are unvalidated values from the pickle."""

    key: Any
    dtype: Any
    num_items: Any


class TensorRef(NamedTuple):
    """A tensor as the pickle describes it. All fields are unvalidated values from the pickle."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any
    dtype: Any


class Inert:
    """Stands for a harmless object that is not weights: accepts any arguments and stores nothing.

    Like every class here it has a `__setstate__`, so a pickle cannot set attributes on it or its instances.
    """

    __slots__ = ()

    def __new__(cls, *_: object) -> "Inert":
        return super().__new__(cls)

    def __init__(self, *_: object) -> None:
        pass

    def ignore(self, *_: object) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = ignore


class Dictionary(dict[Any, Any]):
    """Stands for OrderedDict; the attributes that state dicts carry (`_metadata`) are dropped."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class Parameters(Dictionary):
    """Stands for torch's ParameterDict, which textual inversion files hold; keeps only its parameters."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict) and isinstance(state.get("_parameters"), dict):
            self.update(state["_parameters"])


class Rebuild:
    """Stands for one of torch's rebuild functions; only records its arguments."""

    __slots__ = ("_describe",)
    _describe: Callable[..., object]

    def __init__(self, describe: Callable[..., object]) -> None:
        object.__setattr__(self, "_describe", describe)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise RefusedError(f"its pickle tries to change a function's {name}")

    def __call__(self, *arguments: Any) -> object:
        return self._describe(*arguments)
