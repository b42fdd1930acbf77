"""Ways that fail, or die with their process, are rows that say so."""

import os
from typing import NamedTuple

import torch

from tests.gpu.apart import Row, fill


class Way(NamedTuple):
    name: str


RIGHT, WRONG, DYING, LAST = (Way(name) for name in ("right", "wrong", "dying", "last"))


def found(way: Way, shape: int, device: torch.device, dtype: torch.dtype) -> float:
    if way == WRONG:
        raise ArithmeticError(f"{shape} numbers of {dtype} are others")
    if way == DYING:
        os._exit(1)
    return 10.0 * shape


def test_what_was_found_before_a_process_died_is_kept() -> None:
    rows = {way.name: Row() for way in (RIGHT, WRONG, DYING, LAST)}
    asked = [(RIGHT, 1), (RIGHT, 2), (WRONG, 3), (DYING, 1), (LAST, 1)]
    fill(rows, found, asked, torch.device("cpu"), torch.float16)
    assert rows["right"] == Row({1: 10.0, 2: 20.0})
    assert rows["right"].milliseconds({1: 100, 2: 50}) == 2.0
    assert rows["right"].milliseconds({1: 100, 3: 1}) is None
    assert rows["wrong"].complaints == {3: "ArithmeticError: 3 numbers of torch.float16 are others"}
    for name in ("dying", "last"):
        assert not rows[name].times
        assert rows[name].complaints[1].startswith("no answer")
