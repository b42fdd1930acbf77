"""Processes that torchrun starts again do not meet those that were killed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # unlisted

from calotype.train.distributed import rendezvous


def joined_by(store: Store, world_size: int, monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    monkeypatch.setattr(rendezvous, "rendezvous", lambda *_: iter([(store, 0, world_size)]))
    with ThreadPoolExecutor(world_size) as ranks:
        return list(ranks.map(lambda rank: rendezvous.rendezvous_store(rank, world_size), range(world_size)))


def test_each_start_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    # What a start leaves that was killed before the first rank came.
    store.set("calotype/asks/1", "killed")
    first = joined_by(store, 3, monkeypatch)
    first[1].set("address", "old")
    assert first[0].get("address") == first[2].get("address") == b"old"
    # Fewer than before, as when a node is lost.
    second = joined_by(store, 2, monkeypatch)
    assert not second[0].check(["address"])
    second[1].set("address", "new")
    assert second[0].get("address") == b"new"


def test_ranks_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    monkeypatch.setattr(rendezvous, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(rendezvous, "rendezvous", lambda *_: iter([(store, 0, 3)]))
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] of 3 did not come"):
        rendezvous.rendezvous_store(0, 3)


def test_one_alone_meets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(rendezvous, "rendezvous", refuse)
    assert isinstance(rendezvous.rendezvous_store(0, 1), HashStore)
