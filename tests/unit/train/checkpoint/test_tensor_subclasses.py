"""Tensors made of tensors, as 8-bit optimizers keep them."""

from __future__ import annotations

from typing import Any, Self

import pytest
import torch
from torch import Tensor

from calotype.core.errors import NotFoundError
from calotype.train.checkpoint.flatten import FlatState, flatten, restore
from calotype.train.checkpoint.tensor_subclasses import WRAPPERS, WrapperClass
from tests.unit.train.checkpoint.states import assert_same


class Scaled(Tensor):
    """Codes and a scale that pass for one tensor."""

    codes: Tensor
    scale: Tensor
    signed: bool

    @staticmethod
    def __new__(cls, codes: Tensor, scale: Tensor, signed: bool, dtype: torch.dtype) -> Scaled:
        wrapper: Any = Tensor._make_wrapper_subclass(cls, codes.shape, dtype=dtype)
        wrapper.codes, wrapper.scale, wrapper.signed = codes, scale, signed
        return wrapper

    def __tensor_flatten__(self) -> tuple[list[str], list[object]]:
        return ["codes", "scale"], [self.signed, self.dtype]

    @classmethod
    def __tensor_unflatten__(cls, parts: dict[str, Tensor], context: list[Any], *_: object) -> Self:
        return cls(parts["codes"], parts["scale"], *context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]  # torch declares it as an instance's
        raise AssertionError(f"{func} was called: a wrapper must be taken apart, not computed with")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRAPPERS, "tests.Scaled", WrapperClass(Scaled.__module__, "Scaled", "write it"))


def sample() -> Scaled:
    return Scaled(torch.arange(6, dtype=torch.uint8), torch.tensor([0.5]), True, torch.bfloat16)


@pytest.mark.usefixtures("known")
def test_a_wrapper_is_taken_apart_and_put_together() -> None:
    flat = flatten({0: {"exp_avg": sample()}})
    assert set(flat.tensors) == {"0.exp_avg.codes", "0.exp_avg.scale"}
    back = restore(flat)[0]["exp_avg"]
    assert type(back) is Scaled
    assert (back.signed, back.dtype, back.shape) == (True, torch.bfloat16, (6,))
    assert_same([back.codes, back.scale], [sample().codes, sample().scale])


def test_a_wrapper_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(TypeError, match="is a Scaled, not a plain tensor"):
        flatten([sample()])


def test_a_file_cannot_name_a_class_of_its_own() -> None:
    with pytest.raises(KeyError, match=r"os\.system"):
        restore(FlatState({}, {"wrapped": ["os.system", {"dict": []}, []]}))


def test_a_package_that_is_not_here_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRAPPERS, "absent", WrapperClass("no_such_package_here", "X", "pip install absent"))
    with pytest.raises(NotFoundError, match=r"holds absent, which is not installed .* pip install absent"):
        restore(FlatState({}, {"wrapped": ["absent", {"dict": []}, []]}))
