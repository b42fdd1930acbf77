"""Caches the outputs of nodes by content: node class, widget values and linked inputs.

It evicts the least recently used entries when there are too many or they are too large.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calotype.workflow.graph import Graph, Link
from calotype.workflow.node_api import Context, NodeDef

MAX_ENTRIES = 256
MAX_BYTES = 4 * 2**30


class Cache:
    """Outputs by key, limited by number and by the memory of their tensors and images."""

    def __init__(self, most_entries: int = MAX_ENTRIES, most_bytes: int = MAX_BYTES) -> None:
        self._most_entries, self._most_bytes = most_entries, most_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> tuple[Any, ...] | None:
        """The outputs under `key`, which become the most recently used."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key].outputs

    def put(self, key: str, outputs: tuple[Any, ...]) -> None:
        """Cache outputs; outputs larger than the whole limit are not cached."""
        self._drop(key)
        size = size_bytes(outputs)
        if size > self._most_bytes or not self._most_entries:
            return
        while self._entries and (
            len(self._entries) >= self._most_entries or self.num_bytes + size > self._most_bytes
        ):
            self._drop(next(iter(self._entries)))
        self._entries[key] = _Entry(outputs, size)
        self.num_bytes += size

    def clear(self) -> None:
        """Remove all entries, for example when memory is short."""
        self._entries.clear()
        self.num_bytes = 0

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry:
            self.num_bytes -= entry.size_bytes


@dataclass(frozen=True)
class _Entry:
    outputs: tuple[Any, ...]
    size_bytes: int


def keys(
    graph: Graph, order: tuple[str, ...], registry: Mapping[str, NodeDef], context: Context
) -> dict[str, str]:
    """A cache key for each node, in an order where each node follows its dependencies.

    A node has no key if its dependencies cannot be determined; nor have the nodes that depend on it.
    """
    cache_keys: dict[str, str] = {}
    for name in order:
        node = graph[name]
        inputs: dict[str, Any] = {}
        for key, value in sorted(node.inputs.items()):
            if isinstance(value, Link):
                inputs[key] = ["link", cache_keys.get(value.node), value.output]
            else:
                inputs[key] = ["value", value]
        if any(kind == "link" and rest[0] is None for kind, *rest in inputs.values()):
            continue
        try:
            changes = _changes(registry[node.class_type], node.inputs, context)
            text = json.dumps([node.class_type, registry[node.class_type].module, inputs, changes])
        # The package's code may raise anything; running the node reports the error, if it runs at all.
        except (Exception, SystemExit):  # noqa: S112
            continue
        cache_keys[name] = hashlib.sha256(text.encode()).hexdigest()
    return cache_keys


def _changes(known: NodeDef, inputs: Mapping[str, Any], context: Context) -> str | None:
    if known.changes is None:
        return None
    written = {name: value for name, value in inputs.items() if not isinstance(value, Link)}
    return repr(known.changes(context, written))


def size_bytes(value: object) -> int:
    """Memory of the tensors, arrays and images inside a value; shared objects count once."""
    total, pending, seen = 0, [value], set[int]()
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            pending += item
        else:
            total += _item_size(item)
    return total


def _item_size(value: object) -> int:
    # The attribute of both torch and numpy, neither of which needs to be installed.
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    size = getattr(value, "size", None)
    bands = getattr(value, "getbands", None)
    if callable(bands) and isinstance(size, tuple):
        return int(size[0] * size[1] * len(bands()))
    return sys.getsizeof(value)
