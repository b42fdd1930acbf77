"""`model.encode_aside`: what runs beside what, told from the order in which streams are made to wait.

Whether it is faster, and gives the same losses, is asked of a GPU (tests/gpu/training.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from calotype.train import trainer
from calotype.train.cuda_stream import SideStream
from calotype.train.optimizer import step_unless
from tests.unit.train.runs import small_feed, small_loop, small_recipe


class Stream:
    """Says who waits for it."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name, self._told = name, told

    def wait_stream(self, other: Stream) -> None:
        self._told.append(f"{self._name} waits for {other._name}")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What streams are asked, in order, on what looks like a GPU to `SideStream` alone."""
    told: list[str] = []
    usual = Stream("usual", told)

    @contextmanager
    def inside(_: Stream) -> Iterator[None]:
        told.append("into aside")
        yield
        told.append("out")

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream("aside", told))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: usual)
    monkeypatch.setattr(torch.cuda, "stream", inside)
    monkeypatch.setattr(
        trainer, "SideStream", lambda _, wanted: SideStream(torch.device("cuda"), wanted=wanted)
    )
    return told


def test_the_next_batch_is_prepared_beside_the_update(
    base: Path, tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(base, tmp_path / "run", model__encode_aside=True)
    training = small_loop(recipe)

    def telling(what: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            told.append(what)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(training.subject, "prepare", telling("prepares", training.subject.prepare))
    monkeypatch.setattr(training, "network", telling("network", training.network))
    monkeypatch.setattr(nn.utils, "get_total_norm", telling("norm", nn.utils.get_total_norm))
    monkeypatch.setattr(trainer, "step_unless", telling("update", step_unless))
    with small_feed(recipe, training) as feed:
        training.train_step(feed)
        first, told[:] = list(told), []
        training.train_step(feed)
    beside = ["aside waits for usual", "norm", "update", "into aside", "prepares", "out"]
    assert first == ["usual waits for aside", "prepares", "network", *beside]
    assert told == ["usual waits for aside", "network", *beside]


def test_nobody_waits_where_it_was_not_asked_for(base: Path, tmp_path: Path, told: list[str]) -> None:
    recipe = small_recipe(base, tmp_path / "run")
    training = small_loop(recipe)
    with small_feed(recipe, training) as feed:
        training.train_step(feed)
    assert told == []


def test_without_a_gpu_everything_runs_in_its_turn(base: Path, tmp_path: Path) -> None:
    losses = []
    for changes in ({}, {"model__encode_aside": True}):
        recipe = small_recipe(base, tmp_path / "run", **changes)
        training = small_loop(recipe)
        with small_feed(recipe, training) as feed:
            losses.append([training.train_step(feed).loss for _ in range(3)])
    assert losses[0] == losses[1]
