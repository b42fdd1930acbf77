"""A nested state comes back exactly as it was, through memory and through files."""

from __future__ import annotations

import json
import random
import struct
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from calotype.models.files.dtypes import TORCH_DTYPES
from calotype.train.checkpoint.flatten import flatten, restore
from calotype.train.checkpoint.serialization import read_state, write_state
from tests.unit.train.checkpoint.states import assert_same, train_one, trained

reproducible = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def through_files(state: object) -> Any:
    with TemporaryDirectory() as folder:
        marks = write_state(Path(folder), "state", flatten(state))
        return read_state(Path(folder), "state", marks)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(sorted(TORCH_DTYPES.values(), key=str)))
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    count = torch.Size(shape).numel()
    if dtype == torch.bool or count == 0:
        tensor = torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=dtype)
    else:
        size = count * dtype.itemsize
        raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
        tensor = torch.frombuffer(raw, dtype=dtype)
    tensor = tensor.reshape(shape)
    return tensor.permute(draw(st.permutations(range(len(shape)))))


keys = st.text() | st.integers() | st.booleans() | st.none() | st.floats()
values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))
    | tensors()
)
states = st.recursive(
    values,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@reproducible
@given(state=states)
def test_any_state_comes_back_through_files(state: object) -> None:
    assert_same(through_files(state), state)


@reproducible
@given(state=states)
def test_the_skeleton_is_plain_json(state: object) -> None:
    flat = flatten(state)
    assert json.loads(json.dumps(flat.skeleton, allow_nan=False)) == flat.skeleton


def test_every_bit_of_a_float_stays() -> None:
    odd_nan = struct.unpack(">d", bytes.fromhex("fff8000000000abc"))[0]
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), odd_nan]
    back = through_files(numbers)
    assert [struct.pack(">d", n) for n in back] == [struct.pack(">d", n) for n in numbers]


def test_whole_numbers_of_any_size_stay_whole() -> None:
    numbers = [2**63 - 1, 2**63, -(2**63), -(2**200), 10**5000]
    assert through_files(numbers) == numbers


def test_file_names_that_are_not_utf8_stay() -> None:
    names = ["\udcff.png", "\ud800\udc00", {"\udc80": 1}]
    assert through_files(names) == names


@pytest.mark.parametrize("fused", [False, True])
def test_training_goes_on_from_adamw_to_the_bit(fused: bool) -> None:
    network, optimizer = trained(steps=3)
    saved = {"weights": network.state_dict(), "optimizer": optimizer.state_dict()}
    back = through_files(saved)
    assert_same(back["optimizer"], saved["optimizer"])

    other, other_optimizer = trained(steps=0)
    other.load_state_dict(back["weights"])
    other_optimizer.load_state_dict(back["optimizer"])
    for group in (*optimizer.param_groups, *other_optimizer.param_groups):
        group["fused"] = fused
    for step in range(3, 6):
        train_one(network, optimizer, step)
        train_one(other, other_optimizer, step)
    assert_same(other.state_dict(), network.state_dict())
    assert_same(other_optimizer.state_dict(), optimizer.state_dict())


def test_the_optimizer_keeps_the_strides_of_its_parameters() -> None:
    network, optimizer = trained(steps=1)
    back = through_files(optimizer.state_dict())
    for index, parameter in enumerate(network.parameters()):
        assert back["state"][index]["exp_avg"].stride() == parameter.stride()
    assert next(network.parameters()).stride() == (18, 1, 6, 2)


def test_generators_go_on_where_they_were() -> None:
    torch.manual_seed(3)
    random.seed(3)
    saved = {"torch": torch.get_rng_state(), "python": random.getstate()}
    expected = (torch.rand(5), random.random())
    back = through_files(saved)
    torch.set_rng_state(back["torch"])
    random.setstate(back["python"])
    assert torch.equal(torch.rand(5), expected[0])
    assert random.random() == expected[1]


def test_tied_tensors_are_written_once_and_come_back_tied(tmp_path: Path) -> None:
    layer = nn.Linear(2, 3, bias=False)
    state = {"in": layer.weight, "out": layer.state_dict()["weight"], "view": layer.weight.detach()[:2]}
    marks = write_state(tmp_path, "state", flatten(state))
    assert set(load_file(tmp_path / "state.safetensors")) == {"in", "view"}
    back = read_state(tmp_path, "state", marks)
    assert back["in"] is back["out"]
    assert_same(back, {"in": layer.weight, "out": layer.weight, "view": layer.weight[:2]})


def test_equal_tensors_that_are_not_one_stay_two() -> None:
    back = restore(flatten([torch.zeros(2), torch.zeros(2), torch.zeros(0), torch.zeros(0)]))
    assert len({id(tensor) for tensor in back}) == 4


def test_tensors_without_memory_of_their_own_shape_come_back_dense() -> None:
    values = torch.arange(12.0).reshape(3, 4)
    state = [values[:, ::2], values[0].expand(2, 4), values.to(torch.complex64).conj(), values.t()]
    back = through_files(state)
    assert_same(back, state)
    assert [tensor.stride() for tensor in back] == [(2, 1), (4, 1), (4, 1), (1, 4)]


def test_names_in_the_file_are_paths_where_they_can_be(tmp_path: Path) -> None:
    state = {
        "unet": {"conv.weight": torch.zeros(1), 3: [torch.ones(1)]},
        "unet.conv": {"weight": torch.full((1,), 2.0)},
        "__class__": torch.full((1,), 3.0),
        "tensor-2": torch.full((1,), 4.0),
        "a\nb": torch.full((1,), 5.0),
    }
    marks = write_state(tmp_path, "state", flatten(state))
    names = set(load_file(tmp_path / "state.safetensors"))
    assert {"unet.conv.weight", "unet.3.0"} < names
    assert len(names) == 6
    assert_same(read_state(tmp_path, "state", marks), state)


def test_kinds_of_containers_that_stand_for_plain_ones() -> None:
    back = through_files({"o": OrderedDict(b=1, a=2), "s": torch.Size([2, 3]), "d": torch.bfloat16})
    assert_same(back, {"o": {"b": 1, "a": 2}, "s": (2, 3), "d": torch.bfloat16})


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "the state's 'a.0' is a object; a checkpoint holds tensors, dicts"),
        (b"bytes", "is a bytes"),
        (np.float64(1.0), "is a float64"),
        (Point(1, 2), "is a Point"),
        (defaultdict(int), "is a defaultdict"),
        ({(1, 2): 0}, r"'a.0' has the key \(1, 2\), a tuple; keys are strings"),
        (torch.zeros(2, dtype=torch.complex128), "is torch.complex128, which safetensors cannot hold"),
        (torch.zeros(2, device="meta"), r"has no values \(meta\)"),
        (torch.eye(2).to_sparse(), "is torch.sparse_coo"),
        (torch.nn.UninitializedParameter(), "is a UninitializedParameter, not a plain tensor"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused_by_its_place(value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        flatten({"a": [value]})


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, object] = {}
    state["again"] = state
    with pytest.raises(ValueError, match="deeper than 100 levels, or holds itself"):
        flatten(state)


def test_a_hundred_levels_are_written_and_read() -> None:
    state: object = torch.ones(1)
    for _ in range(100):
        state = {"deeper": state}
    assert_same(through_files(state), state)
