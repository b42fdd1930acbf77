"""Results of nodes, kept by content: what a node is, what was written into it and what was linked to it.

The oldest unused go first when there are too many or they are too large. Knows nothing of running.
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
    """Outputs by key, bounded by number and by the memory of the tensors and pictures in them."""

    def __init__(self, most_entries: int = MAX_ENTRIES, most_bytes: int = MAX_BYTES) -> None:
        self._most_entries, self._most_bytes = most_entries, most_bytes
        self._kept: OrderedDict[str, _Entry] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str) -> tuple[Any, ...] | None:
        """The outputs under `key`, which are then the last to go."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key].outputs

    def put(self, key: str, outputs: tuple[Any, ...]) -> None:
        """Keep outputs; what is larger than the whole bound is not kept at all."""
        self._drop(key)
        size = size_bytes(outputs)
        if size > self._most_bytes or not self._most_entries:
            return
        while self._kept and (
            len(self._kept) >= self._most_entries or self.num_bytes + size > self._most_bytes
        ):
            self._drop(next(iter(self._kept)))
        self._kept[key] = _Entry(outputs, size)
        self.num_bytes += size

    def clear(self) -> None:
        """Forget everything, as when memory is short."""
        self._kept.clear()
        self.num_bytes = 0

    def _drop(self, key: str) -> None:
        entry = self._kept.pop(key, None)
        if entry:
            self.num_bytes -= entry.size_bytes


@dataclass(frozen=True)
class _Entry:
    outputs: tuple[Any, ...]
    size_bytes: int


def keys(
    graph: Graph, order: tuple[str, ...], registry: Mapping[str, NodeDef], context: Context
) -> dict[str, str]:
    """A key for each node, in an order where every one follows those it needs.

    A node has none if what it depends on cannot be said; nothing after it has one either.
    """
    found: dict[str, str] = {}
    for name in order:
        node = graph[name]
        inputs: dict[str, Any] = {}
        for key, value in sorted(node.inputs.items()):
            if isinstance(value, Link):
                inputs[key] = ["link", found.get(value.node), value.output]
            else:
                inputs[key] = ["value", value]
        if any(kind == "link" and rest[0] is None for kind, *rest in inputs.values()):
            continue
        try:
            changes = _changes(registry[node.class_type], node.inputs, context)
            text = json.dumps([node.class_type, registry[node.class_type].module, inputs, changes])
        # The package's own words; running the node will tell what is wrong, if it is run at all.
        except (Exception, SystemExit):  # noqa: S112
            continue
        found[name] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _changes(known: NodeDef, inputs: Mapping[str, Any], context: Context) -> str | None:
    if known.changes is None:
        return None
    written = {name: value for name, value in inputs.items() if not isinstance(value, Link)}
    return repr(known.changes(context, written))


def size_bytes(value: object) -> int:
    """Memory of the tensors, arrays and pictures inside a value; things seen twice count once."""
    total, waiting, seen = 0, [value], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
        else:
            total += _size_of_one(one)
    return total


def _size_of_one(value: object) -> int:
    # Torch and numpy both call it so; neither need be here.
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    size = getattr(value, "size", None)
    bands = getattr(value, "getbands", None)
    if callable(bands) and isinstance(size, tuple):
        return int(size[0] * size[1] * len(bands()))
    return sys.getsizeof(value)
